// Feeds the inputs of a journal to a new loop and policy, and compares the results with the stored
// ones byte for byte: every decision with its effects, every state of the policy, every command.
// Only replay takes past decisions again.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>

#include "rubato/base/result.h"
#include "rubato/daemon/daemon_state.h"
#include "rubato/journal/journal_file.h"

namespace rubato::daemon {

struct Replayed {
  struct Difference {
    RowNumber number;
    std::string type;
    std::string stored;
    std::string computed;
  };

  std::uint64_t rows = 0;
  std::uint64_t decisions = 0;
  std::uint64_t policy_states = 0;
  std::uint64_t commands = 0;  // rows of them
  std::uint64_t jobs = 0;
  std::optional<Difference> difference;  // the first
  RowNumber after;  // rows up to this one are no longer kept; 0: all were replayed
};

// An error if the journal cannot be read or folded. If its first rows are no longer kept, it begins
// with the oldest snapshot. `progress` gets the present row and the number of rows.
[[nodiscard]] Result<Replayed> replay(
    const std::filesystem::path& directory, const DaemonStateOptions& options,
    const std::function<void(RowNumber at, RowNumber last)>& progress = nullptr);

}  // namespace rubato::daemon
