// Reads a whole text file, plain or gzip (distinguished by the first bytes), within limits. A
// decompression bomb, a directory or a line of a gigabyte gives one sentence that names the file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "rubato/base/result.h"

namespace rubato::sim {

struct TextLimits {
  std::uint64_t bytes = std::uint64_t{2} << 30U;  // after decompression
  std::size_t line = std::size_t{1} << 20U;
};

// A text that begins with "{" is JSON and may be a single long line. For JSON, the size limit of
// base/json.h applies instead of the limit on lines.
[[nodiscard]] Result<std::string> read_text_file(const std::string& path, TextLimits limits = {});

// "folder/jobs.csv.gz" -> "jobs.csv.gz".
[[nodiscard]] std::string file_name(const std::string& path);

}  // namespace rubato::sim
