// Small files of JSON that are complete or missing: written to a temporary file and renamed. Only
// the owner can access them (0600). None is opened if it is a symbolic link.
#pragma once

#include <optional>
#include <string>

#include "rubato/base/json.h"
#include "rubato/base/result.h"

namespace rubato::launch {

// The file gets mode 0600. If writing fails, the old file stays. With Durable::no the call does not
// wait for the disk; that is for files about processes, which a reboot makes useless.
enum class Durable : bool { no, yes };
[[nodiscard]] Result<void> write_json_file(const std::string& path, const Json& content,
                                           Durable durable = Durable::yes);
// nullopt if there is no such file. An error if it cannot be read, is too large, or is not JSON.
[[nodiscard]] Result<std::optional<Json>> read_json_file(const std::string& path);

// So that names in a directory are on the disk, too.
[[nodiscard]] bool sync_directory(const std::string& directory);

}  // namespace rubato::launch
