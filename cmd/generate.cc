#include <fmt/format.h>
#include <memory>
#include <tuple>

#include "cmd/command_line.h"
#include "rubato/base/text.h"
#include "rubato/core/cluster.h"
#include "rubato/sim/generator.h"

namespace rubato::cmd {
namespace {

struct GenerateFlags {
  GeneratorOptions options;
  std::string cluster, gpu_mix, tightness, models, search, out = "-", format;
};

// "1=80,2=10,8=10": numbers of GPUs with their weights.
Result<std::vector<GpuShare>> parse_mix(const std::string& text) {
  std::vector<GpuShare> mix;
  for (const auto item : split(text, ',')) {
    const auto parts = split(item, '=');
    const auto gpus = parse_integer(trim(parts[0]));
    const auto weight = parts.size() == 2 ? parse_double(trim(parts[1])) : std::nullopt;
    if (!gpus || *gpus < 1 || *gpus > 1'000'000 || !weight) {
      return Error{fmt::format("--gpu-mix {}: write GPUS=WEIGHT,..., for example 1=80,2=10,8=10",
                               base::quoted(text))};
    }
    mix.push_back({static_cast<int>(*gpus), *weight});
  }
  return mix;
}

Result<Trace> generated(GenerateFlags& flags) {
  if (!flags.cluster.empty()) {
    const auto cluster = parse_cluster(flags.cluster);
    if (!cluster) return cluster.error();
    flags.options.cluster_gpus = cluster->largest_type();
  }
  if (!flags.gpu_mix.empty()) {
    auto mix = parse_mix(flags.gpu_mix);
    if (!mix) return mix.error();
    flags.options.gpu_mix = std::move(*mix);
  }
  if (!flags.models.empty()) {
    for (const auto name : split(flags.models, ',')) {
      if (trim(name).empty()) {
        return Error{fmt::format("--models {}: write NAME,..., for example resnet50,vgg16",
                                 base::quoted(flags.models))};
      }
      flags.options.model_names.emplace_back(trim(name));
    }
  }
  if (!flags.tightness.empty()) {
    const auto tightness = parse_tightness("--tightness", flags.tightness);
    if (!tightness) return tightness.error();
    std::tie(flags.options.tightness_low, flags.options.tightness_high) = *tightness;
  }
  if (!flags.search.empty()) {
    auto search = parse_trace_search("search:" + flags.search);
    if (!search) {
      return Error{
          fmt::format("--search {}: write trials=N:share=S, for example "
                      "trials=8:share=0.1; keep-one-in=N and wait=false may follow",
                      base::quoted(flags.search))};
    }
    flags.options.search = std::move(*search);
  }
  return generate(flags.options);
}

int run(GenerateFlags& flags) {
  const auto trace = generated(flags);
  if (!trace) return bad_input(trace.error());
  const auto written =
      write_file(flags.out, flags.format == "json" ? to_json_text(*trace) : to_csv(*trace));
  if (!written) return bad_input(written.error());
  if (flags.out != "-")
    fmt::print(stderr, "{} jobs written to {}\n", trace->jobs.size(), flags.out);
  return 0;
}

}  // namespace

void add_generate(CLI::App& app, Action& chosen) {
  auto* command = app.add_subcommand(
      "generate",
      "Write a trace of jobs for the simulator, drawn from a seed. The distributions are like "
      "those "
      "of public traces: jobs arrive as a Poisson process, durations are log-uniform, most jobs "
      "ask "
      "for one GPU, and a few users submit most jobs. The same options give the same bytes.");
  auto flags = std::make_shared<GenerateFlags>();
  auto& o = flags->options;
  const auto option = [&](const char* name, auto& value, const char* type, const char* help) {
    return command->add_option(name, value, help)->type_name(type);
  };
  option("--jobs", o.jobs, "NUMBER", "number of jobs")->capture_default_str();
  option("--seed", o.seed, "NUMBER", "seed of the random numbers")->capture_default_str();
  option(
      "--cluster", flags->cluster, "NODESxGPUS",
      "the cluster that the trace is for, as in `rubato simulate`. No job asks for more GPUs than "
      "it has, and --load refers to it");
  option(
      "--load", o.load, "NUMBER",
      "GPU time that the jobs ask for, divided by the GPU time of the cluster: above 1, the queue "
      "grows. Needs --cluster (default: 0.8)");
  option("--rate", o.jobs_per_hour, "NUMBER",
         "jobs per hour, instead of --load (default without --cluster: 30)");
  command->add_flag("--diurnal", o.diurnal,
                    "busy afternoons and quiet nights, with the same mean rate");
  option("--shortest", o.shortest_s, "SECONDS", "shortest duration")->capture_default_str();
  option("--longest", o.longest_s, "SECONDS", "longest duration")->capture_default_str();
  option("--gpu-mix", flags->gpu_mix, "GPUS=WEIGHT,...",
         "how often jobs ask for each number of GPUs: with 1=80,8=20, 80% ask for 1 and 20% for 8 "
         "(default: like public traces, 85% ask for 1)");
  option("--deadlines", o.deadline_share, "SHARE", "share of the jobs with a deadline, 0 to 1")
      ->capture_default_str();
  option("--tightness", flags->tightness, "LOW:HIGH",
         "time from submission to deadline, as a multiple of the duration, drawn from this range. "
         "Below 1, only an elastic job can meet its deadline (default: 0.5:1.5)");
  option(
      "--searches", o.search_share, "SHARE",
      "share of the jobs that are trials of searches for hyper-parameters, 0 to 1. The trials of "
      "a search are submitted at once, and the simulator stops the worst after each stage")
      ->capture_default_str();
  option("--search", flags->search, "trials=N:share=S",
         "the searches: number of trials, length of the first stage as a share of the work, and "
         "keep-one-in=N or wait=false (default: trials=8:share=0.0625:keep-one-in=2)");
  option("--users", o.users, "NUMBER", "number of users; user i submits in proportion to 1/i")
      ->capture_default_str();
  option("--models", flags->models, "NAME,...",
         "each job trains one of these models, all equally often (default: a model of the "
         "catalogue)");
  option("--power", o.power, "Q",
         "all jobs have the speed k^Q on k GPUs, 0 < Q <= 1, as theory assumes (default: each job "
         "has a model of the catalogue)");
  command->add_flag("--at-once", o.at_once, "submit all jobs at time 0");
  option("--format", flags->format, "NAME", "format of the trace: csv or json")
      ->check(one_of({"csv", "json"}))
      ->default_str("csv");
  option("--out", flags->out, "FILE", "file to write; - is standard output")->capture_default_str();
  command->footer(
      "Examples:\n"
      "  rubato generate --jobs 300 --cluster 8x8 --load 1.1 --out jobs.csv\n"
      "  rubato generate --jobs 1000 --rate 60 --diurnal --deadlines 0.5 --seed 7 --out day.csv\n"
      "  rubato simulate --trace jobs.csv --cluster 8x8 --policy fifo,afs-l\n"
      "\n"
      "docs/traces.md describes the formats and the distributions.\n"
      "\n"
      "Exit code: 0 written, 2 bad input.");
  command->callback([flags, &chosen] { chosen = [flags] { return run(*flags); }; });
}

}  // namespace rubato::cmd
