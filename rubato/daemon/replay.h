// Takes a journal's inputs through a fresh loop and policy and compares what comes out with what
// was stored: every decision with what became of it, every state of the policy, every command, byte
// for byte. The one place where the past is decided again.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>

#include "rubato/base/result.h"
#include "rubato/daemon/journal_file.h"
#include "rubato/daemon/ledger.h"

namespace rubato {

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
};

// An error if the journal cannot be read or folded.
[[nodiscard]] Result<Replayed> replay(const std::filesystem::path& directory,
                                      const LedgerOptions& options);

}  // namespace rubato
