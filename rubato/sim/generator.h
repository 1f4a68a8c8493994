// Generates traces from a seed, with distributions like those of public traces: Poisson arrivals,
// log-uniform durations, mostly one GPU, a few busy users. The same options give the same bytes.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "rubato/base/result.h"
#include "rubato/sim/trace.h"

namespace rubato::sim {

struct GpuShare {
  int gpus = 1;
  double weight = 1;
};

// Between the shares of Philly (93 / 2 / 2 / 2 % of jobs on 1 / 2 / 4 / 8 GPUs, 0.4 % above) and of
// the Microsoft clusters of 2021 (85 / 2 / 3 / 9 %, 1 % above).
[[nodiscard]] std::vector<GpuShare> public_gpu_mix();

struct GeneratorOptions {
  int jobs = 1000;
  std::uint64_t seed = 1;

  // The arrival rate: give either the rate or the load. The load is GPU time asked for / GPU time
  // available, so it needs the cluster's size. Default: load 0.8, or 30 jobs an hour without a
  // cluster.
  std::optional<int> cluster_gpus = std::nullopt;  // no job asks for more than this
  std::optional<double> load = std::nullopt;
  std::optional<double> jobs_per_hour = std::nullopt;
  bool diurnal = false;  // busy afternoons and quiet nights, with the same mean rate

  double shortest_s = 60;  // durations are log-uniform in shortest..longest
  double longest_s = 86400;
  std::vector<GpuShare> gpu_mix = public_gpu_mix();

  // Deadline = submission + tightness x duration, with uniform tightness. The defaults are the
  // range of the public deadline traces (ElasticFlow). Only an elastic job can meet a tightness
  // below 1.
  double deadline_share = 0;
  double tightness_low = 0.5;
  double tightness_high = 1.5;

  // So many of the jobs are trials of searches for hyper-parameters (model/search.h). The trials of
  // a search are submitted at once by one user, with the same model, GPU count and duration.
  double search_share = 0;
  TraceSearch search{"", {8, 2, false}, 0.0625, true};  // without its name

  int users = 20;                             // the i-th user submits in proportion to 1/i
  bool models = true;                         // give each job a model of the catalogue
  std::vector<std::string> model_names = {};  // or one of these

  // The setting of heSRPT: speed k^power on k GPUs (the model "power:Q"), all jobs present at time
  // 0.
  std::optional<double> power = std::nullopt;
  bool at_once = false;
};

[[nodiscard]] Result<Trace> generate(const GeneratorOptions& options);

}  // namespace rubato::sim
