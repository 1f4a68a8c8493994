// Who sends first on links with priorities (--link-order, with a contention file of links).
//
//   fair       nobody: transfers share a link equally
//   intensity  the job with the highest communication intensity. Sure (a public summary of Crux,
//              SIGCOMM'24): intensity is I_j = W_j / t_j, W_j the computation of an iteration, t_j
//              = max over links of bytes / bandwidth; high ones first. Our reading: W_j is the time
//              in which the GPUs of the job compute in a step, times their number. (There it is
//              floating-point operations, and priorities are few; paths are chosen, too.)
//   grouper    stages of searches in an order that keeps their average completion time low. Sure
//              (abstract of Grouper, TNSM'20): a co-job is the trials of one search, the worst are
//              stopped at every stage, stages are permuted and their flows get priorities in that
//              order. Our reading: the order is that of Sincronia (SIGCOMM'18) on stages. On the
//              link with the most to send, the stage with the least weight / demand goes last; the
//              weights of the others are reduced by what that costs; then the rest in the same way.
//              A job that is no trial is a stage by itself, which ends with the job.
//
// Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string_view>
#include <vector>

#include "rubato/base/result.h"

namespace rubato::sim {

enum class LinkOrder : std::uint8_t { fair, intensity, grouper };
[[nodiscard]] Result<LinkOrder> parse_link_order(std::string_view name);

// Seconds that a stage still sends through each link.
using LinkDemand = std::map<std::size_t, double>;

// The place of each stage in the order, from 0. All have the weight 1.
[[nodiscard]] std::vector<int> order_of_stages(std::span<const LinkDemand> stages);

// The place of each job, from 0, by falling intensity; equal ones have the same place.
[[nodiscard]] std::vector<int> order_by_intensity(std::span<const double> intensities);

}  // namespace rubato::sim
