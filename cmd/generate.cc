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
  std::string cluster, gpu_mix, tightness, out = "-", format;
};

// "1=80,2=10,4=5": GPU counts with their weights.
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
  if (!flags.tightness.empty()) {
    const auto tightness = parse_tightness("--tightness", flags.tightness);
    if (!tightness) return tightness.error();
    std::tie(flags.options.tightness_low, flags.options.tightness_high) = *tightness;
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
      "generate", "Write a trace made from a seed, with the distributions of the public traces.");
  auto flags = std::make_shared<GenerateFlags>();
  auto& o = flags->options;
  command->add_option("--jobs", o.jobs, "number of jobs")
      ->type_name("NUMBER")
      ->capture_default_str();
  command->add_option("--seed", o.seed, "same seed, same bytes")
      ->type_name("NUMBER")
      ->capture_default_str();
  command
      ->add_option(
          "--cluster", flags->cluster,
          "cluster it is meant for, as in simulate: no job asks for more, and --load refers to it")
      ->type_name("NODESxGPUS");
  command
      ->add_option("--load", o.load,
                   "GPU-time asked for / GPU-time there is (default 0.8 with --cluster)")
      ->type_name("NUMBER");
  command->add_option("--rate", o.jobs_per_hour, "jobs an hour, instead of --load")
      ->type_name("NUMBER");
  command->add_flag("--diurnal", o.diurnal, "busy afternoons and quiet nights");
  command->add_option("--shortest", o.shortest_s, "shortest duration in seconds (log-uniform)")
      ->type_name("SECONDS")
      ->capture_default_str();
  command->add_option("--longest", o.longest_s, "longest duration in seconds")
      ->type_name("SECONDS")
      ->capture_default_str();
  command
      ->add_option("--gpu-mix", flags->gpu_mix,
                   "GPUS=WEIGHT,... (default: as in the public traces)")
      ->type_name("LIST");
  command->add_option("--deadlines", o.deadline_share, "share of jobs with a deadline, 0..1")
      ->type_name("SHARE")
      ->capture_default_str();
  command
      ->add_option("--tightness", flags->tightness,
                   "LOW:HIGH: deadline = submission + this x duration (default 0.5:1.5)")
      ->type_name("LOW:HIGH");
  command->add_option("--users", o.users, "number of users")
      ->type_name("NUMBER")
      ->capture_default_str();
  command
      ->add_option("--power", o.power,
                   "jobs of theory: speed k^Q on k GPUs (model power:Q) instead of the catalogue")
      ->type_name("Q");
  command->add_flag("--at-once", o.at_once, "all jobs are submitted at time 0");
  command->add_option("--format", flags->format, "csv or json")
      ->type_name("NAME")
      ->check(CLI::IsMember({"csv", "json"}))
      ->default_str("csv");
  command->add_option("--out", flags->out, "file to write; - is standard output")
      ->type_name("FILE")
      ->capture_default_str();
  command->callback([flags, &chosen] { chosen = [flags] { return run(*flags); }; });
}

}  // namespace rubato::cmd
