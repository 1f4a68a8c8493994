#include "rubato/sim/learn.h"

#include <algorithm>
#include <filesystem>
#include <fmt/format.h>
#include <memory>
#include <string>

#include "cmd/command_line.h"
#include "cmd/progress_bar.h"
#include "cmd/report_page.h"
#include "rubato/base/text.h"
#include "rubato/sim/contention.h"
#include "rubato/sim/learn_ppo.h"
#include "rubato/sim/text_file.h"

namespace rubato::cmd {
namespace {

struct LearnFlags {
  LearnOptions options;
  PpoOptions ppo;  // without its scenes
  std::string method = "cross-entropy";
  std::string contention, models, imitated, checkpoint, report, out = "-";
};

// Steps of a search with a checkpoint after each. `first` is where it begins without one.
template <class State, class Searcher>
Result<State> search(const LearnFlags& flags, State state, Searcher& searcher, int State::*steps,
                     int most, std::size_t simulations) {
  if (!flags.checkpoint.empty() && std::filesystem::exists(flags.checkpoint)) {
    const auto text = read_text_file(flags.checkpoint);
    if (!text) return text.error();
    auto read = State::parse(*text, flags.checkpoint);
    if (!read) return read.error();
    state = std::move(*read);
  }
  ProgressBar progress("learning",
                       static_cast<std::size_t>(std::max(0, most - state.*steps)) * simulations);
  while (state.*steps < most) {
    auto next = searcher.step(std::move(state), &progress.done());
    if (!next) return next.error();
    state = std::move(*next);
    if (flags.checkpoint.empty()) continue;
    if (auto ok = write_file(flags.checkpoint, state.to_text()); !ok) return ok.error();
  }
  return state;
}

Json line_json(const char* label, const std::vector<double>& values) {
  Json points = Json::array();
  for (std::size_t i = 0; i < values.size(); ++i) points.push_back({i, values[i]});
  return {{"label", label}, {"points", points}};
}

Result<void> write_report(const LearnFlags& flags, const Json& charts) {
  if (flags.report.empty()) return {};
  const Json data = {{"kind", "learn"},
                     {"title", flags.method + " on generated workloads"},
                     {"settings",
                      {{"models", flags.models},
                       {"contention", flags.options.hidden ? "hidden" : flags.contention},
                       {"seed", std::to_string(flags.options.seed)},
                       {"scenes", std::to_string(flags.options.scenes)},
                       {"jobs", std::to_string(flags.options.jobs)}}},
                     {"charts", charts}};
  return write_file(flags.report, study_page(data));
}

Json cost_chart(const char* horizontal, Json lines) {
  return {{"title", "Average JCT"},
          {"about", "Relative to srsf with placement pack on the same jobs. Lower is better."},
          {"horizontal", horizontal},
          {"vertical", "of srsf + pack"},
          {"lines", std::move(lines)}};
}

Result<void> by_cross_entropy(const LearnFlags& flags) {
  const auto& o = flags.options;
  auto learner = Learner::make(o);
  if (!learner) return learner.error();
  const auto state =
      search(flags, first_state(), **learner, &LearnState::generation, o.generations,
             static_cast<std::size_t>(o.population) * static_cast<std::size_t>(o.scenes));
  if (!state) return state.error();
  std::vector<double> mean, best;
  for (const auto& point : state->curve) {
    fmt::print(stderr, "generation {:>3}: mean weights {:.4f}, best {:.4f}\n", mean.size(),
               point.mean_cost, point.best_cost);
    mean.push_back(point.mean_cost);
    best.push_back(point.best_cost);
  }
  fmt::print(stderr, "best: {:.4f} of the average JCT of srsf with placement pack\n",
             state->best_cost);
  const Json charts = {cost_chart(
      "generation", {line_json("mean weights", mean), line_json("best of the generation", best)})};
  if (auto ok = write_report(flags, charts); !ok) return ok;
  return write_file(flags.out, to_text(state->best));
}

Result<void> by_ppo(const LearnFlags& flags) {
  PpoOptions options = flags.ppo;
  options.scenes = flags.options;
  auto learner = PpoLearner::make(options);
  if (!learner) return learner.error();
  const auto state = search(flags, first_ppo_state(flags.options.seed), **learner,
                            &PpoState::iteration, options.iterations,
                            static_cast<std::size_t>(options.drawn_scenes + options.scenes.scenes));
  if (!state) return state.error();
  std::vector<double> cost, drawn, entropy;
  for (const auto& point : state->curve) {
    fmt::print(stderr, "iteration {:>3}: {:.4f}, with chance {:.4f}, entropy {:.3f}{}\n",
               cost.size(), point.cost, point.drawn_cost, point.entropy,
               static_cast<int>(cost.size()) < options.imitations ? " (imitates)" : "");
    cost.push_back(point.cost);
    drawn.push_back(point.drawn_cost);
    entropy.push_back(point.entropy);
  }
  fmt::print(stderr, "best: {:.4f} of the average JCT of srsf with placement pack\n",
             state->best_cost);
  const Json charts = {
      cost_chart("iteration", {line_json("without chance, on the same scenes", cost),
                               line_json("with chance, on new scenes", drawn)}),
      {{"title", "Entropy"},
       {"about", "How undecided the policy is, per choice. 0: it always takes the same."},
       {"horizontal", "iteration"},
       {"vertical", "nats"},
       {"lines", {line_json("entropy", entropy)}}}};
  if (auto ok = write_report(flags, charts); !ok) return ok;
  return write_file(flags.out, to_text(state->best));
}

Result<Weights> read_weights(const std::string& path) {
  const auto text = read_text_file(path);
  if (!text) return text.error();
  return parse_weights(*text, path);
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
  if (!flags.imitated.empty()) {
    const auto weights = read_weights(flags.imitated);
    if (!weights) return bad_input(weights.error());
    flags.ppo.imitated = *weights;
  }
  const auto done = flags.method == "ppo" ? by_ppo(flags) : by_cross_entropy(flags);
  return done ? 0 : bad_input(done.error());
}

}  // namespace

void add_learn(CLI::App& app, Action& chosen) {
  auto* command = app.add_subcommand(
      "learn",
      "Find weights for the policy `learned` on generated workloads whose jobs slow each other "
      "down: for its linear scorer by the cross-entropy method, or for its network by proximal "
      "policy optimisation (PPO). The same options give the same bytes.");
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
  option("--method", flags->method, "NAME",
         "cross-entropy: weights of the linear scorer; ppo: a network, for scorer=network")
      ->check(one_of({"cross-entropy", "ppo"}))
      ->capture_default_str();
  option("--seed", o.seed, "NUMBER", "seed of the random numbers")->capture_default_str();
  option("--generations", o.generations, "NUMBER", "how often cross-entropy improves the weights")
      ->check(from_to(1, 10'000))
      ->capture_default_str();
  option("--iterations", flags->ppo.iterations, "NUMBER",
         "how often ppo improves the network; the first ones imitate the linear scorer")
      ->check(from_to(1, 10'000))
      ->capture_default_str();
  option("--drawn-scenes", flags->ppo.drawn_scenes, "NUMBER",
         "new workloads in each iteration of ppo")
      ->check(from_to(1, 1'000))
      ->capture_default_str();
  option(
      "--imitate", flags->imitated, "FILE",
      "weights of the linear scorer that ppo imitates first, and whose order of the jobs it keeps "
      "(default: the shipped ones)");
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
  option("--checkpoint", flags->checkpoint, "FILE",
         "file that is written after each step. If it is there, the search continues from it");
  option("--report", flags->report, "FILE", "write a page with the curves (HTML)");
  option("--out", flags->out, "FILE", "file to write the weights to; - is standard output")
      ->capture_default_str();
  command->footer(
      "Examples:\n"
      "  rubato learn --contention pairs.csv --models MoE,FSDP,DLRM --out weights.json\n"
      "  rubato simulate --trace jobs.csv --cluster 8x4 --placement pack --contention pairs.csv "
      "\\\n"
      "    --policy srsf,learned:weights=weights.json\n"
      "  rubato learn --method ppo --contention pairs.csv --models MoE,FSDP --out network.json\n"
      "  rubato simulate --trace jobs.csv --cluster 8x4 --placement pack --contention pairs.csv "
      "\\\n"
      "    --policy learned:scorer=network,weights=network.json\n"
      "\n"
      "docs/learning.md describes the method and what it gives.\n"
      "\n"
      "Exit code: 0 done, 2 bad input.");
  command->callback([flags, &chosen] { chosen = [flags] { return run(*flags); }; });
}

}  // namespace rubato::cmd
