#include "rubato/sim/learn.h"

#include <algorithm>
#include <filesystem>
#include <fmt/format.h>
#include <memory>
#include <string>

#include "cmd/command_line.h"
#include "cmd/progress_bar.h"
#include "rubato/base/text.h"
#include "rubato/sim/contention.h"
#include "rubato/sim/text_file.h"

namespace rubato::cmd {
namespace {

struct LearnFlags {
  LearnOptions options;
  std::string contention, models, checkpoint, out = "-";
};

Result<LearnState> begin(const LearnFlags& flags) {
  if (flags.checkpoint.empty() || !std::filesystem::exists(flags.checkpoint)) return first_state();
  const auto text = read_text_file(flags.checkpoint);
  if (!text) return text.error();
  return LearnState::parse(*text, flags.checkpoint);
}

Result<LearnState> search(const LearnFlags& flags) {
  auto state = begin(flags);
  if (!state) return state.error();
  auto learner = Learner::make(flags.options);
  if (!learner) return learner.error();
  const int left = std::max(0, flags.options.generations - state->generation);
  ProgressBar progress("learning", static_cast<std::size_t>(left) *
                                       static_cast<std::size_t>(flags.options.population) *
                                       static_cast<std::size_t>(flags.options.scenes));
  while (state->generation < flags.options.generations) {
    state = (*learner)->step(std::move(*state), &progress.done());
    if (!state) return state.error();
    if (flags.checkpoint.empty()) continue;
    if (auto ok = write_file(flags.checkpoint, state->to_text()); !ok) return ok.error();
  }
  return state;
}

int run(LearnFlags& flags) {
  if (flags.options.elite > flags.options.population)
    return bad_input({"--elite: must not be larger than --population"});
  auto contention = read_contention(flags.contention);
  if (!contention) return bad_input(contention.error());
  flags.options.contention = std::move(*contention);
  for (const auto name : split(flags.models, ',')) {
    if (!flags.options.contention->knows(trim(name))) {
      return bad_input({fmt::format("--models: {} has nothing about {}", flags.contention,
                                    base::quoted(trim(name)))});
    }
    flags.options.models.emplace_back(trim(name));
  }
  const auto state = search(flags);
  if (!state) return bad_input(state.error());
  if (auto ok = write_file(flags.out, to_text(state->best)); !ok) return bad_input(ok.error());
  for (std::size_t i = 0; i < state->curve.size(); ++i) {
    fmt::print(stderr, "generation {:>3}: mean weights {:.4f}, best {:.4f}\n", i,
               state->curve[i].mean_cost, state->curve[i].best_cost);
  }
  fmt::print(stderr, "best: {:.4f} of the average JCT of srsf with placement pack\n",
             state->best_cost);
  return 0;
}

}  // namespace

void add_learn(CLI::App& app, Action& chosen) {
  auto* command = app.add_subcommand(
      "learn",
      "Find weights for the policy `learned` by the cross-entropy method, on generated workloads "
      "whose jobs slow each other down. The same options give the same bytes.");
  auto flags = std::make_shared<LearnFlags>();
  auto& o = flags->options;
  const auto option = [&](const char* name, auto& value, const char* type, const char* help) {
    return command->add_option(name, value, help)->type_name(type);
  };
  option("--contention", flags->contention, "FILE",
         "what jobs on the same nodes lose to each other, as in `rubato simulate`")
      ->required();
  option("--models", flags->models, "NAME,...", "the models that jobs train; all in that file")
      ->required();
  option("--seed", o.seed, "NUMBER", "seed of the random numbers")->capture_default_str();
  option("--generations", o.generations, "NUMBER", "how often the weights are improved")
      ->check(from_to(1, 10'000))
      ->capture_default_str();
  option("--population", o.population, "NUMBER", "sets of weights in a generation")
      ->check(from_to(2, 10'000))
      ->capture_default_str();
  option("--elite", o.elite, "NUMBER", "how many of the best form the next generation")
      ->check(from_to(1, 10'000))
      ->capture_default_str();
  option("--scenes", o.scenes, "NUMBER", "generated workloads that each set is simulated on")
      ->check(from_to(1, 1'000))
      ->capture_default_str();
  option("--jobs", o.jobs, "NUMBER", "jobs of a workload")
      ->check(from_to(1, 100'000))
      ->capture_default_str();
  option("--threads", o.threads, "NUMBER",
         "simulations at the same time; 0 means one per core. The result does not depend on it")
      ->capture_default_str();
  command->add_flag("--hidden", o.hidden, "learn without looking at contention");
  option(
      "--checkpoint", flags->checkpoint, "FILE",
      "file that is written after each generation. If it is there, the search continues from it");
  option("--out", flags->out, "FILE", "file to write the weights to; - is standard output")
      ->capture_default_str();
  command->footer(
      "Examples:\n"
      "  rubato learn --contention pairs.csv --models MoE,FSDP,DLRM --out weights.json\n"
      "  rubato simulate --trace jobs.csv --cluster 8x4 --placement pack --contention pairs.csv "
      "\\\n"
      "    --policy srsf,learned:weights=weights.json\n"
      "\n"
      "docs/learning.md describes the method and what it gives.\n"
      "\n"
      "Exit code: 0 done, 2 bad input.");
  command->callback([flags, &chosen] { chosen = [flags] { return run(*flags); }; });
}

}  // namespace rubato::cmd
