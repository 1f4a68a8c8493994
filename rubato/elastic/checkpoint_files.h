// What both ways to use a directory of checkpoints need of the file system.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "rubato/base/result.h"
#include "rubato/elastic/checkpoint_format.h"
#include "rubato/wire/socket.h"

namespace rubato::elastic {

[[nodiscard]] std::string inside(const std::string& directory, std::string_view name);
// Sorted.
[[nodiscard]] Result<std::vector<std::string>> names_in(const std::string& directory);
[[nodiscard]] Result<void> sync_directory(const std::string& directory);
// Also those above it.
[[nodiscard]] Result<void> make_directory(const std::string& directory);
// Durably. Returns 0, or the error number of the system.
[[nodiscard]] int write_all(const wire::Fd& file, const CheckpointImage& image);
[[nodiscard]] Error no_room(const std::string& path, std::uint64_t bytes, int error);
// Of the name of a job. It is stored, so it must never change.
[[nodiscard]] std::int64_t digest_of(const std::string& job);

}  // namespace rubato::elastic
