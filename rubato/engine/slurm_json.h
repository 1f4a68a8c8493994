// What slurmrestd says and is told, in JSON. Pure. Version 38 of its interface is that of Slurm
// 22.05; the later ones say numbers and states in another way.
#pragma once

#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "rubato/base/result.h"
#include "rubato/base/wall_time.h"
#include "rubato/engine/slurm_way.h"

namespace rubato::engine {

// Those that can be spoken, the newest first.
inline constexpr std::array<int, 5> kSlurmRestVersions{42, 41, 40, 39, 38};

[[nodiscard]] Result<std::vector<SlurmPartition>> read_slurm_partitions(std::string_view text);
[[nodiscard]] Result<std::vector<SlurmNode>> read_slurm_nodes(std::string_view text);
[[nodiscard]] Result<std::vector<SlurmJob>> read_slurm_jobs(std::string_view text,
                                                            std::string_view prefix, WallTime now);
// The number of the job that was made; empty: there is none.
[[nodiscard]] std::string read_submitted_slurm_job(std::string_view text);
// What went wrong, as one sentence; empty: nothing.
[[nodiscard]] std::string read_slurm_errors(std::string_view text);

// The body of a submission. An error if JSON cannot say it.
[[nodiscard]] Result<std::string> slurm_job_json(const SlurmRequest& request,
                                                 const launch::Environment& environment,
                                                 const SlurmOptions& options, int version);

}  // namespace rubato::engine
