#include "rubato/journal/codec.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <gtest/gtest.h>
#include <limits>
#include <memory>
#include <optional>
#include <rapidcheck/gtest.h>
#include <stdexcept>
#include <string>
#include <tuple>
#include <utility>
#include <variant>
#include <vector>

#include "rubato/base/random.h"
#include "rubato/base/testing_seeds.h"
#include "rubato/core/testing.h"
#include "rubato/loop/scheduler.h"
#include "rubato/model/curve.h"
#include "rubato/model/goodput_estimate.h"
#include "rubato/model/measured_speed.h"
#include "rubato/policy/testing.h"
#include "rubato/sim/sim_engine.h"

namespace rubato::journal {
namespace {

// --- equality, written apart from the codec ---
//
// Every member by position: one that is forgotten does not compile.

bool same(double a, double b) {
  return std::bit_cast<std::uint64_t>(a) == std::bit_cast<std::uint64_t>(b);
}
bool same(const Allocation& a, const Allocation& b) {
  return a == b && a.type() == b.type() && a.gpus() == b.gpus();
}
bool same(const Progress& a, const Progress& b) {
  const auto& [left, at, rate] = a;
  return same(left, b.work_left) && at == b.at && same(rate, b.rate);
}
bool same(const JobSpec& a, const JobSpec& b) {
  const auto& [name, user, model, requested, limits, preemptible, weight, batch, adaptive_batch,
               deadline, restart_cost, cooldown, notice, goes_first, work_guessed, utility,
               opportunistic, quota, tries_pairs, skew] = a;
  const auto& [min, max, allowed] = limits;
  return name == b.name && user == b.user && model == b.model && requested == b.requested &&
         min == b.limits.min && max == b.limits.max && allowed == b.limits.allowed &&
         preemptible == b.preemptible && same(weight, b.weight) && batch == b.batch &&
         adaptive_batch == b.adaptive_batch && deadline == b.deadline &&
         restart_cost == b.restart_cost && cooldown == b.cooldown && notice == b.notice &&
         goes_first == b.goes_first && work_guessed == b.work_guessed &&
         opportunistic == b.opportunistic && quota == b.quota && tries_pairs == b.tries_pairs &&
         utility.has_value() == b.utility.has_value() &&
         (!utility ||
          (same(utility->value, b.utility->value) && same(utility->decay, b.utility->decay) &&
           utility->target == b.utility->target)) &&
         skew.has_value() == b.skew.has_value() && (!skew || same(*skew, *b.skew));
}
bool same(const SpeedModel& a, const SpeedModel& b) {
  if (typeid(a) != typeid(b) || !std::ranges::equal(a.measured(), b.measured())) return false;
  for (int type = 0; type < 3; ++type) {
    for (int gpus = 1; gpus < 40; ++gpus) {
      for (const int nodes : {0, 1, 3}) {
        if (nodes > gpus) continue;
        const Shape shape{gpu_type(static_cast<std::size_t>(type)), gpus, nodes, 1};
        if (!same(a.rate(shape), b.rate(shape))) return false;
        if (!same(a.beside(shape, a), b.beside(shape, b))) return false;
      }
    }
  }
  return true;
}
bool same(const ShownLosses& a, const ShownLosses& b) {
  const auto& [points, epoch, threshold] = a;
  return same(epoch, b.epoch) && same(threshold, b.threshold) &&
         std::ranges::equal(points, b.points, [](const LossPoint& x, const LossPoint& y) {
           const auto& [done, loss] = x;
           return same(done, y.done) && same(loss, y.loss);
         });
}
template <class T>
bool same(const std::shared_ptr<const T>& a, const std::shared_ptr<const T>& b) {
  return a == nullptr || b == nullptr ? a == b : same(*a, *b);
}

struct SameWant {
  bool operator()(const Count& a, const Count& b) const {
    const auto& [type, gpus] = a;
    return type == b.type && gpus == b.gpus;
  }
  bool operator()(const Spread& a, const Spread& b) const { return a.gpus == b.gpus; }
  bool operator()(const Exact& a, const Exact& b) const { return same(a.gpus, b.gpus); }
  bool operator()(const Beside& a, const Beside& b) const { return a.host == b.host; }
  template <class A, class B>
  bool operator()(const A& /*a*/, const B& /*b*/) const {
    return false;
  }
};

bool same(const Decision& a, const Decision& b) {
  const auto& [run, reject, promise, again_at, as_of, advice] = a;
  const auto grants = [](const Grant& x, const Grant& y) {
    const auto& [job, want, batch] = x;
    return job == y.job && std::visit(SameWant(), want, y.want) && batch == y.batch;
  };
  const auto rejects = [](const Reject& x, const Reject& y) {
    const auto& [job, reason, earliest] = x;
    return job == y.job && reason == y.reason && earliest == y.earliest;
  };
  const auto promises = [](const Promise& x, const Promise& y) {
    const auto& [job, finish, plan, movable] = x;
    return job == y.job && finish == y.finish && plan == y.plan && movable == y.movable;
  };
  const auto advices = [](const Advice& x, const Advice& y) {
    const auto& [utility, nodes] = x;
    return same(utility, y.utility) && nodes == y.nodes;
  };
  return std::ranges::equal(run, b.run, grants) && std::ranges::equal(reject, b.reject, rejects) &&
         std::ranges::equal(promise, b.promise, promises) && again_at == b.again_at &&
         as_of == b.as_of && advice.has_value() == b.advice.has_value() &&
         (!advice || advices(*advice, *b.advice));
}

struct SameEvent {
  bool operator()(const Submitted& a, const Submitted& b) const {
    const auto& [job, spec, speed, work] = a;
    return job == b.job && same(spec, b.spec) && same(speed, b.speed) && same(work, b.work);
  }
  bool operator()(const Running& a, const Running& b) const {
    const auto& [job, generation, progress] = a;
    return job == b.job && generation == b.generation && same(progress, b.progress);
  }
  bool operator()(const Released& a, const Released& b) const {
    const auto& [job, generation, gpus, progress, stopped] = a;
    return job == b.job && generation == b.generation && same(gpus, b.gpus) &&
           same(progress, b.progress) && stopped == b.stopped;
  }
  bool operator()(const Finished& a, const Finished& b) const {
    const auto& [job, generation, at] = a;
    return job == b.job && generation == b.generation && at == b.at;
  }
  bool operator()(const Failed& a, const Failed& b) const {
    const auto& [job, generation, progress, infrastructure, why] = a;
    return job == b.job && generation == b.generation && same(progress, b.progress) &&
           infrastructure == b.infrastructure && why == b.why;
  }
  bool operator()(const NodeChanged& a, const NodeChanged& b) const {
    const auto& [node, state, why] = a;
    return node == b.node && state == b.state && why == b.why;
  }
  bool operator()(const NodeAdded& a, const NodeAdded& b) const {
    const auto& [node, added] = a;
    return node == b.node && added == b.added;
  }
  bool operator()(const Reserved& a, const Reserved& b) const {
    const auto& [node, gpus, why] = a;
    return node == b.node && gpus == b.gpus && why == b.why;
  }
  bool operator()(const Estimated& a, const Estimated& b) const {
    const auto& [job, speed, losses, skew] = a;
    return job == b.job && same(speed, b.speed) && same(losses, b.losses) &&
           skew.has_value() == b.skew.has_value() && (!skew || same(*skew, *b.skew));
  }
  bool operator()(const Wake& /*a*/, const Wake& /*b*/) const { return true; }
  bool operator()(const Cancelled& a, const Cancelled& b) const { return a.job == b.job; }
  bool operator()(const HoldChanged& a, const HoldChanged& b) const {
    const auto& [job, on, until] = a;
    return job == b.job && on == b.on && until == b.until;
  }
  bool operator()(const Limited& a, const Limited& b) const {
    const auto& [min, max, allowed] = a.limits;
    return a.job == b.job && min == b.limits.min && max == b.limits.max &&
           allowed == b.limits.allowed && a.keeps == b.keeps;
  }
  bool operator()(const Due& a, const Due& b) const {
    return a.job == b.job && a.deadline == b.deadline;
  }
  bool operator()(const Skipped& a, const Skipped& b) const {
    return a.jobs == b.jobs && a.generations == b.generations;
  }
  bool operator()(const Decided& a, const Decided& b) const {
    if (!same(a.decision, b.decision) || a.carried.has_value() != b.carried.has_value())
      return false;
    if (!a.carried) return true;
    const auto same_change = [](const Change& one, const Change& other) {
      const auto& [job, kind, target] = one;
      return job == other.job && kind == other.kind && same(target, other.target);
    };
    const auto& [changes, refused] = *a.carried;
    return refused == b.carried->refused &&
           std::equal(changes.begin(), changes.end(), b.carried->changes.begin(),
                      b.carried->changes.end(), same_change);
  }
  bool operator()(const Start& a, const Start& b) const {
    const auto& [job, generation, gpus, batch] = a;
    return job == b.job && generation == b.generation && same(gpus, b.gpus) && batch == b.batch;
  }
  bool operator()(const Resize& a, const Resize& b) const {
    const auto& [job, generation, gpus, batch] = a;
    return job == b.job && generation == b.generation && same(gpus, b.gpus) && batch == b.batch;
  }
  bool operator()(const Stop& a, const Stop& b) const {
    const auto& [job, generation] = a;
    return job == b.job && generation == b.generation;
  }
  template <class A, class B>
  bool operator()(const A& /*a*/, const B& /*b*/) const {
    return false;
  }
};

// --- values by chance ---

// Values of all magnitudes, the edges among them.
class Draw {
 public:
  explicit Draw(std::uint64_t seed) : random_(seed) {}

  bool coin() { return random_.below(2) == 0; }
  std::size_t below(std::size_t bound) { return random_.below(bound); }
  double number() {
    for (;;) {
      const std::vector<double> edges = {0, -0.0, 1, 0.1, 1e16, 5e-324, 1.7976931348623157e308};
      const double value =
          coin() ? edges[below(edges.size())] : std::bit_cast<double>(random_.next());
      if (std::isfinite(value)) return value;
    }
  }
  double positive() { return random_.log_uniform(1e-3, 1e3); }
  template <class T>
  T whole() {
    const auto shift = below(static_cast<std::size_t>(std::numeric_limits<T>::digits));
    const auto bits = static_cast<T>(random_.next());
    return coin() ? bits : static_cast<T>(bits >> shift);
  }
  template <class T>
  T id() {
    return T(whole<typename T::rep>());
  }
  Time time() { return below(8) == 0 ? kNever : Time(duration()); }
  Duration duration() { return Duration(whole<std::int64_t>()); }
  std::string text() {
    const std::vector<std::string> parts = {"a",  "\"", "\\", "\n",  "\xc3\xa4",
                                            "{}", ".",  " ",  "\x01"};
    std::string text;
    while (below(4) != 0) text += parts[below(parts.size())];
    return text;
  }
  template <class F>
  auto maybe(const F& draw) {
    return coin() ? std::optional(draw()) : std::nullopt;
  }
  template <class F>
  auto list(const F& draw) {
    std::vector<decltype(draw())> values;
    while (below(3) != 0) values.push_back(draw());
    return values;
  }

  Allocation gpus() {
    Allocation gpus(id<GpuType>());
    for (const auto& slice : list([&] { return Slice{id<NodeId>(), random_.next() | 1U}; }))
      gpus.add(slice);
    return gpus;
  }
  Progress progress() { return {number(), time(), number()}; }
  Batch batch() { return {whole<int>(), whole<int>()}; }
  std::shared_ptr<const JobSpec> spec() {
    JobSpec spec{
        text(),     text(),       text(), whole<int>(), {},         coin(),
        number(),   whole<int>(), coin(), {},           duration(), duration(),
        duration(), coin(),       coin(), {},           coin(),     coin() ? 0 : whole<int>(),
        coin()};
    spec.skew = maybe([&] { return number(); });
    spec.utility = maybe([&] { return Utility{number(), number(), duration()}; });
    spec.limits = {whole<int>(), whole<int>(), list([&] { return whole<int>(); })};
    spec.deadline = maybe([&] { return time(); });
    return std::make_shared<JobSpec>(spec);
  }
  std::shared_ptr<const ThroughputTable> table() {
    auto table = std::make_shared<ThroughputTable>(1 + below(3), 1 + below(3));
    while (below(8) != 0) {
      const GpuType type = gpu_type(below(table->types()));
      const int gpus = 1 + static_cast<int>(below(9));
      table->set_alone(below(table->rows()), type, gpus, coin() ? positive() : 0);
      table->set_beside(below(table->rows()), below(table->rows()), type, gpus, positive());
    }
    return table;
  }
  std::shared_ptr<const SpeedModel> speed() {
    std::vector<CurvePoint> points;
    int gpus = 0;
    do {
      gpus += 1 + static_cast<int>(below(5));
      points.push_back({gpus, positive()});
    } while (below(4) != 0);
    switch (below(7)) {
      case 0:
        return nullptr;
      case 1:
        return std::make_shared<ConstantSpeed>(number());
      case 2:
        return std::make_shared<CurveSpeed>(points, random_.uniform());
      case 3:
        return std::make_shared<PowerSpeed>(1 - random_.uniform() / 2, gpus, positive());
      case 4: {
        std::map<int, WorkRate> rates;
        for (const auto& point : points) rates[point.gpus] = point.rate;
        return std::make_shared<MeasuredSpeed>(rates, gpus + static_cast<int>(below(9)));
      }
      case 5: {
        const BatchLimits limits{32 + static_cast<int>(below(32)), 4096, 8, 64, coin()};
        const auto seen = maybe([&] {
          const StepTime time{positive(), positive(), positive(),           positive(),
                              positive(), positive(), 1 + random_.uniform()};
          return GoodputEstimate::Seen{time, {positive(), positive()}, gpus};
        });
        std::vector<GoodputEstimate::OnType> types;
        for (std::size_t t = 0; seen && t < below(4); ++t) {
          types.push_back({positive(), maybe([&] { return seen->time.slowed_by(positive()); }),
                           static_cast<int>(below(9))});
        }
        return std::make_shared<GoodputEstimate>(limits, maybe([&] { return 64; }), seen, types);
      }
      default: {
        const auto drawn = table();
        return std::make_shared<TypedSpeed>(drawn, below(drawn->rows()));
      }
    }
  }
  std::shared_ptr<const ShownLosses> losses() {
    if (coin()) return nullptr;
    return std::make_shared<ShownLosses>(ShownLosses{list([&] {
                                                       return LossPoint{number(), number()};
                                                     }),
                                                     number(), number()});
  }
  Want want() {
    switch (below(4)) {
      case 0:
        return Count{id<GpuType>(), whole<int>()};
      case 1:
        return Spread{list([&] { return std::pair(id<NodeId>(), whole<int>()); })};
      case 2:
        return Exact{gpus()};
      default:
        return Beside{id<JobId>()};
    }
  }
  Decision decision() {
    Decision decision;
    const auto grant = [&] { return Grant{id<JobId>(), want(), maybe([&] { return batch(); })}; };
    decision.run = list(grant);
    decision.reject = list([&] {
      return Reject{id<JobId>(), text(), maybe([&] { return time(); })};
    });
    const auto step = [&] { return GpuStep{time(), whole<int>()}; };
    decision.promise = list([&] { return Promise{id<JobId>(), time(), list(step), coin()}; });
    decision.again_at = maybe([&] { return time(); });
    decision.as_of = id<Sequence>();
    decision.advice = maybe([&] { return Advice{number(), whole<int>()}; });
    return decision;
  }
  Carried carried() {
    return {list([&] {
              return Change{id<JobId>(), static_cast<Change::Kind>(below(4)), gpus()};
            }),
            text()};
  }
  Event event() {
    const auto job = id<JobId>();
    const auto generation = id<Generation>();
    switch (below(16)) {
      case 0:
        return Submitted{job, spec(), speed(), number()};
      case 1:
        return Running{job, generation, progress()};
      case 2:
        return Released{job, generation, gpus(), progress(), coin()};
      case 3:
        return Finished{job, generation, maybe([&] { return WallTime(time() - kStart); })};
      case 4:
        return Failed{job, generation, progress(), coin(), text()};
      case 5:
        return NodeChanged{id<NodeId>(), static_cast<NodeState>(below(4)), text()};
      case 6:
        return Estimated{job, speed(), losses(), maybe([&] { return number(); })};
      case 7:
        return Wake{};
      case 8:
        return Cancelled{job};
      case 9:
        return HoldChanged{job, coin(), maybe([&] { return time(); })};
      case 10:
        return Limited{job,
                       {whole<int>(), whole<int>(), list([&] { return whole<int>(); })},
                       maybe([&] { return gpus(); })};
      case 11:
        return Due{job, maybe([&] { return time(); })};
      case 12:
        return Skipped{whole<int>(), whole<int>()};
      case 13:
        return NodeAdded{id<NodeId>(), {text(), text(), whole<int>(), labels()}};
      case 14:
        return Reserved{id<NodeId>(), whole<std::uint64_t>(), text()};
      default:
        return Decided{decision(), maybe([&] { return carried(); })};
    }
  }
  Command command() {
    const auto job = id<JobId>();
    const auto generation = id<Generation>();
    const auto given = maybe([&] { return batch(); });
    switch (below(3)) {
      case 0:
        return Start{job, generation, gpus(), given};
      case 1:
        return Resize{job, generation, gpus(), given};
      default:
        return Stop{job, generation};
    }
  }
  NodeLabels labels() {
    NodeLabels labels;
    for (std::size_t i = below(3); i > 0; --i) labels["key" + std::to_string(below(9))] = text();
    return labels;
  }
  Cluster cluster() {
    std::vector<std::string> types;
    for (std::size_t t = 0; t < 1 + below(3); ++t) types.push_back("type" + std::to_string(t));
    std::vector<NodeGroup> groups;
    for (std::size_t g = 0; g < 1 + below(3); ++g) {
      groups.push_back({1 + static_cast<int>(below(5)), 1 + static_cast<int>(below(64)),
                        gpu_type(below(types.size()))});
    }
    Cluster cluster(groups, types);
    for (std::size_t i = 0; i < cluster.nodes().size(); ++i)
      cluster.set_state(node_id(i), static_cast<NodeState>(below(4)));
    for (std::size_t i = below(4); i > 0; --i)
      cluster.add({"tux" + std::to_string(i), "type" + std::to_string(below(4)),
                   1 + static_cast<int>(below(64)), labels()});
    for (std::size_t i = 0; i < cluster.nodes().size(); ++i) {
      if (coin()) cluster.set_reserved(node_id(i), random_.next() & cluster.node(node_id(i)).all());
    }
    return cluster;
  }

 private:
  Random random_;
};

// --- every value ---

RC_GTEST_PROP(Codec, WhatWasReadIsWhatWasWritten, (std::uint64_t seed)) {
  Draw draw(seed);
  SpeedPool pool;
  const Event event = draw.event();
  const auto text = encode(event);
  RC_ASSERT(text.ok());
  const auto again = decode_event(*text, pool);
  RC_ASSERT(again.ok());
  RC_ASSERT(std::visit(SameEvent(), event, *again));
  RC_ASSERT(*encode(*again) == *text);

  const Command command = draw.command();
  RC_ASSERT(std::visit(SameEvent(), command, decode_command(encode(command).value()).value()));
  const auto spec = draw.spec();
  RC_ASSERT(same(*spec, decode_job_spec(encode(*spec).value()).value()));
  const Allocation gpus = draw.gpus();
  RC_ASSERT(same(gpus, decode_allocation(encode(gpus).value()).value()));
  const Progress progress = draw.progress();
  RC_ASSERT(same(progress, decode_progress(encode(progress).value()).value()));
  if (const auto speed = draw.speed())
    RC_ASSERT(same(*speed, **decode_speed(encode(*speed).value(), pool)));
}

RC_GTEST_PROP(Codec, ClustersKeepTheirNodes, (std::uint64_t seed)) {
  const Cluster cluster = Draw(seed).cluster();
  const auto again = decode_cluster(encode(cluster).value()).value();
  RC_ASSERT(again.nodes().size() == cluster.nodes().size());
  for (std::size_t i = 0; i < cluster.nodes().size(); ++i) {
    const auto& [type, gpus, state, reserved] = cluster.nodes()[i];
    RC_ASSERT(again.nodes()[i].type == type && again.nodes()[i].gpus == gpus);
    RC_ASSERT(again.nodes()[i].state == state && again.nodes()[i].reserved == reserved);
    RC_ASSERT(again.name(node_id(i)) == cluster.name(node_id(i)));
    RC_ASSERT(again.labels(node_id(i)) == cluster.labels(node_id(i)));
  }
  RC_ASSERT(again.types() == cluster.types());
  for (int t = 0; t < cluster.types(); ++t) {
    const GpuType type = gpu_type(static_cast<std::size_t>(t));
    RC_ASSERT(again.type_name(type) == cluster.type_name(type));
    RC_ASSERT(again.usable(type) == cluster.usable(type));
    RC_ASSERT(again.installed(type) == cluster.installed(type));
  }
  RC_ASSERT(encode(again).value() == encode(cluster).value());
}

TEST(Codec, TextsAreWhatTheFormatSays) {
  const auto body = [](const Event& event) { return encode(event).value().body; };
  EXPECT_EQ(body(Wake{}), "{}");
  EXPECT_EQ(
      body(Released{job_id(3), Generation(2), gpus_on({{1, 0b101}}), {2.5, time_at(1), 3}, true}),
      R"({"generation":2,"gpus":{"slices":[[1,5]],"type":0},"job":3,)"
      R"("progress":{"at":1000000,"rate":3.0,"work_left":2.5},"stopped":true})");
  Decision decision;
  decision.as_of = Sequence(7);
  decision.run = {grant_count(0, 4), grant_beside(1, 0)};
  decision.promise = {{job_id(0), time_at(2), {{kStart, 4}}, false}};
  EXPECT_EQ(body(Decided{decision}),
            R"({"decision":{"as_of":7,"promise":[{"finish":2000000,"job":0,"movable":false,)"
            R"("plan":[[0,4]]}],"reject":[],"run":[{"job":0,"want":{"gpus":4,"kind":"count",)"
            R"("type":0}},{"job":1,"want":{"host":0,"kind":"beside"}}]}})");
  EXPECT_EQ(encode(CurveSpeed(std::vector<CurvePoint>{{1, 1}, {4, 2.5}})).value().body,
            R"({"kind":"curve","network":0.0,"points":[[1,1.0],[4,2.5]]})");
  EXPECT_EQ(encode(cluster_of("2x4:a,1x2:b")).value().body,
            R"({"groups":[[2,4,0],[1,2,1]],"not_up":[],"types":["a","b"]})");
}

TEST(Codec, RefusesWhatCannotBeStored) {
  const auto problem = [](const Result<Coded>& coded) {
    return coded ? "stored " + coded->body : coded.error().message;
  };
  EXPECT_EQ(problem(encode(Progress{std::nan(""), kStart, 0})),
            "progress: nan is no number that JSON knows");
  EXPECT_EQ(problem(encode(Event(Submitted{job_id(0), nullptr, nullptr, 1}))),
            "submitted: the spec is missing");
  JobSpec spec;
  spec.name = "\xff";
  EXPECT_EQ(problem(encode(spec)), "job-spec: \"\\xff\" is not UTF-8");
  struct Truth final : SpeedModel {
    [[nodiscard]] WorkRate rate(const Shape& /*shape*/) const override { return 1; }
  };
  EXPECT_EQ(problem(encode(Event(Estimated{job_id(0), std::make_shared<Truth>()}))),
            "estimated: a speed of a kind that only the simulator knows cannot be stored");
  EXPECT_EQ(problem(encode(cluster_of("100001x1"))),
            "cluster: a cluster of more than 100000 nodes cannot be stored");
}

TEST(Codec, ClustersOfOlderJournalsAreReadAndWrittenAsTheyWere) {
  const Coded old{"cluster", 1, R"({"groups":[[2,4,0]],"not_up":[[1,"down"]],"types":["gpu"]})"};
  const auto cluster = decode_cluster(old);
  ASSERT_TRUE(cluster.ok()) << cluster.error().message;
  EXPECT_EQ(cluster->name(node_id(1)), "node1");
  EXPECT_EQ(cluster->node(node_id(0)).reserved, 0U);
  EXPECT_EQ(encode(*cluster).value(), old);
  const auto problem = [](const std::string& more) {
    const auto read = decode_cluster(
        {"cluster", 1, R"({"groups":[[2,4,0]],"not_up":[],)" + more + R"(,"types":["gpu"]})"});
    return read ? "accepted" : read.error().message;
  };
  EXPECT_EQ(problem(R"("reserved":[[1,15]])"), "accepted");
  EXPECT_EQ(problem(R"("reserved":[[1,16]])"), "cluster.reserved[0]: must be GPUs of its node");
  EXPECT_EQ(problem(R"("reserved":[[2,1]])"), "cluster.reserved[0]: must be a node of the cluster");
  EXPECT_EQ(problem(R"("described":[[2,"tux",{}]])"),
            "cluster.described[0]: must be a node of the cluster");
}

TEST(Codec, RefusesWhatItDoesNotUnderstandInOneSentence) {
  const auto problem = [](const char* type, int version, const std::string& body) {
    SpeedPool pool;
    const auto event = decode_event({type, version, body}, pool);
    return event ? "accepted" : event.error().message;
  };
  EXPECT_EQ(problem("finished", 1, R"({"generation":1,"job":2})"), "accepted");
  EXPECT_EQ(problem("finished", 2, R"({"at":3,"generation":1,"job":2})"), "accepted");
  EXPECT_EQ(problem("finished", 3, "{}"),
            "finished of version 3: this version of rubato reads them up to 2; use the newer one "
            "that wrote it");
  // As an older version wrote them.
  EXPECT_EQ(problem("held", 1, R"({"job":2,"on":true})"), "accepted");
  EXPECT_EQ(problem("failed", 1,
                    R"({"generation":1,"job":2,"progress":{"at":0,"rate":0,"work_left":1}})"),
            "accepted");
  EXPECT_EQ(problem("finished", 0, "{}"), "finished of version 0: there is none");
  EXPECT_EQ(problem("start", 1, "{}"), "\"start\" is no type of event");
  EXPECT_EQ(problem("ended", 1, "{}"), "\"ended\" is no type of event");
  EXPECT_EQ(problem("finished", 1, "{"), "finished: not valid JSON near byte 2");
  EXPECT_EQ(problem("finished", 1, "[]"), "finished: must be an object");
  EXPECT_EQ(problem("finished", 1, R"({"generation":1})"), "finished: lacks the field \"job\"");
  EXPECT_EQ(problem("finished", 1, R"({"generation":1,"job":2,"code":0})"),
            "finished: has the unknown field \"code\"");
  EXPECT_EQ(problem("finished", 1, R"({"generation":-1,"job":2})"),
            "finished.generation: must be a whole number from 0 to 4294967295");
  EXPECT_EQ(problem("finished", 1, R"({"generation":1.0,"job":2})"),
            "finished.generation: must be a whole number from 0 to 4294967295");
  EXPECT_EQ(problem("node-changed", 1, R"({"node":1,"state":"off"})"),
            "node-changed.state: must be up, draining, down or unknown");
  EXPECT_EQ(problem("decided", 1,
                    R"({"decision":{"as_of":7,"promise":[],"reject":[],"run":[{"job":0,)"
                    R"("want":{"gpus":4,"kind":"count","type":0,"x":1}}]}})"),
            "decided.decision.run[0].want: has the unknown field \"x\"");
  EXPECT_EQ(
      problem("estimated", 1, R"({"job":0,"speed":{"kind":"curve","network":0,"points":[]}})"),
      "estimated.speed: must be a curve of rates above 0 at up to 4096 GPUs");
  EXPECT_EQ(problem("estimated", 1,
                    R"({"job":0,"speed":{"kind":"typed","row":1,"table":{"alone":[],"beside":[],)"
                    R"("rows":1,"types":1}}})"),
            "estimated.speed: must be a row of its table");
  EXPECT_EQ(problem("estimated", 1,
                    R"({"job":0,"speed":{"kind":"typed","row":1,"table":{"alone":[[0,0,0,1]],)"
                    R"("beside":[],"rows":1,"types":1}}})"),
            "estimated.speed.table.alone[0]: must be a type of the table, at least 1 GPU and a "
            "rate from 0");
  EXPECT_EQ(problem("finished", 1, std::string(40, '[')), "finished: nested deeper than 32 levels");
}

// One unknown field in any object of a valid text, and one missing or foreign value anywhere, must
// not be taken.
void plant_everywhere(Json& whole, Json& part, const std::function<void(const Json&)>& judge) {
  if (part.is_object()) {
    part["surplus"] = 1;
    judge(whole);
    part.erase("surplus");
  }
  if (part.is_structured()) {
    for (auto& inner : part) plant_everywhere(whole, inner, judge);
  } else {
    const Json kept = std::exchange(part, Json::array({Json::array()}));
    judge(whole);
    part = kept;
  }
}

TEST(Codec, RefusesASurplusFieldAndAForeignValueWhereverTheyAre) {
  for (std::uint64_t seed = 0; seed < tries(300); ++seed) {
    const Coded coded = encode(Draw(seed).event()).value();
    Json json = Json::parse(coded.body);
    plant_everywhere(json, json, [&](const Json& changed) {
      SpeedPool pool;
      const auto read = decode_event({coded.type, 1, changed.dump()}, pool);
      ASSERT_FALSE(read.ok()) << changed.dump();
      EXPECT_TRUE(read.error().message.starts_with(coded.type)) << read.error().message;
    });
  }
}

TEST(SpeedPool, EqualSpeedsAreOneObjectWhileTheyAreUsed) {
  SpeedPool pool;
  const auto read = [&](const SpeedModel& speed) {
    return decode_speed(encode(speed).value(), pool).value();
  };
  const auto one = read(ConstantSpeed(1));
  EXPECT_EQ(read(ConstantSpeed(1)), one);
  EXPECT_NE(read(ConstantSpeed(2)), one);
  auto table = std::make_shared<ThroughputTable>(2, 1);
  table->set_alone(0, GpuType(), 1, 2);
  table->set_alone(1, GpuType(), 1, 3);
  table->set_beside(0, 1, GpuType(), 1, 1);
  table->set_beside(1, 0, GpuType(), 1, 2);
  const auto first = read(TypedSpeed(table, 0));
  const auto second = read(TypedSpeed(table, 1));
  EXPECT_NE(first, second);
  EXPECT_EQ(read(TypedSpeed(table, 1)), second);
  EXPECT_EQ(first->beside({GpuType(), 1, 1, 1}, *second), 1) << "they share a table";
  for (int i = 0; i < 1000; ++i) static_cast<void>(read(ConstantSpeed(i + 10)));
  EXPECT_LT(pool.size(), 200U);
  EXPECT_EQ(read(ConstantSpeed(1)), one) << "still in use";
}

// --- states ---

// The value, or a failure that says why there is none.
template <class T>
T must(Result<T> result) {
  if (!result) throw std::runtime_error(result.error().message);
  return std::move(*result);
}

// What a daemon would have written down: events with the moments at which a policy was asked.
struct Asked {};
struct Entry {
  Time time;
  std::variant<Asked, Coded> what;
};

// Lives through a random workload in a simulated cluster, with a policy that takes its time: its
// decision is posted a few events after it was asked.
class Life {
 public:
  Life(std::string_view policy, std::uint64_t seed)
      : draw_(seed),
        policy_(testing::make_policy(policy, {1, 2, 3, 5, 8, 13, 21})),
        name_(policy),
        cluster_(cluster_of(one_type() ? "3x4" : "2x3:a,2x4:b")),
        placement_(static_cast<Placement>(draw_.below(7))),
        workload_(make_workload()),
        scheduler_(cluster_, placement_),
        engine_(workload_, cluster_, true) {}

  void run(std::size_t most_entries) {
    Time now = kStart;
    std::size_t submitted = 0;
    std::optional<Decision> thinking;
    while (entries.size() < most_entries) {
      // What can happen next, and when.
      std::optional<Time> next;
      const auto consider = [&](std::optional<Time> t) {
        if (t) next = next ? std::min(*next, std::max(*t, now)) : std::max(*t, now);
      };
      if (submitted < workload_.jobs.size()) consider(workload_.jobs[submitted].submit);
      consider(engine_.next_fact());
      consider(scheduler_.state().again_at);
      if (thinking || scheduler_.decision_due()) consider(now);
      if (!next) return;
      now = *next;
      if (submitted < workload_.jobs.size() && workload_.jobs[submitted].submit <= now) {
        const SimJob& job = workload_.jobs[submitted];
        post(now, Submitted{job_id(submitted), job.spec, job.speed, job.work});
        ++submitted;
      }
      if (draw_.below(30) == 0) {
        const NodeId node = node_id(draw_.below(cluster_.nodes().size()));
        const bool up = scheduler_.snapshot().cluster.node(node).state == NodeState::up;
        engine_.change_node(now, node, up ? NodeState::down : NodeState::up);
      }
      std::vector<Event> facts;
      engine_.collect(now, facts);
      for (auto& fact : facts) post(now, std::move(fact));
      if (scheduler_.state().again_at && *scheduler_.state().again_at <= now) post(now, Wake{});
      if (thinking && draw_.below(3) != 0) {
        post(now, Decided{std::move(*std::exchange(thinking, std::nullopt))});
      }
      if (!thinking && scheduler_.decision_due()) {
        entries.push_back({now, Asked()});
        answers.push_back({});
        thinking = must(policy_->decide(scheduler_.ask(now)));
        answers.back().decision = must(encode(Event(Decided{*thinking}))).body;
      }
    }
  }

  struct Answer {
    std::string decision;  // to Asked
    std::vector<Coded> commands;
    std::string refused;
  };

  // The entries from the start to the cut, then through JSON, then the rest with what came out of
  // it: the answers to all.
  std::vector<Answer> cut_at(std::size_t cut) const {
    std::vector<Answer> found;
    auto pool = std::make_unique<SpeedPool>();
    auto scheduler = std::make_unique<Scheduler>(cluster_, placement_);
    auto policy = testing::make_policy(name_, {1, 2, 3, 5, 8, 13, 21});
    for (std::size_t i = 0; i < entries.size(); ++i) {
      if (i == cut) {
        const Coded state = must(encode(scheduler->state()));
        const std::string policy_state = must(canonical_json(policy->save()));
        pool = std::make_unique<SpeedPool>();
        auto again = decode_state(state, *pool);
        EXPECT_TRUE(again.ok()) << again.error().message;
        EXPECT_EQ(encode(*again).value().body, state.body);
        scheduler = std::make_unique<Scheduler>(std::move(*again), placement_);
        policy = testing::make_policy(name_, {1, 2, 3, 5, 8, 13, 21});
        const auto loaded = policy->load(parse_json(policy_state, "state").value());
        EXPECT_TRUE(loaded.ok()) << loaded.error().message;
      }
      found.push_back(answer(entries[i], *scheduler, *policy, *pool));
    }
    return found;
  }

  std::vector<Entry> entries;
  std::vector<Answer> answers;

 private:
  [[nodiscard]] bool one_type() const {
    return parse_policies(name_).value().front().entry->one_type;
  }

  Workload make_workload() {
    Workload workload;
    workload.name = "test";
    double submit_s = 0;
    auto table = std::make_shared<ThroughputTable>(3, 2);
    for (std::size_t row = 0; row < 3; ++row) {
      for (std::size_t type = 0; type < 2; ++type) {
        for (int gpus = 1; gpus <= 4; ++gpus) {
          table->set_alone(row, gpu_type(type), gpus, 1 + static_cast<double>(draw_.below(3)));
          for (std::size_t other = 0; other < 3; ++other)
            table->set_beside(row, other, gpu_type(type), gpus, 0.8);
        }
      }
    }
    const std::size_t jobs = 5 + draw_.below(15);
    for (std::size_t i = 0; i < jobs; ++i) {
      testing::Draft draft{.gpus = 1 + static_cast<int>(draw_.below(4)),
                           .work = 1 + static_cast<double>(draw_.below(40)),
                           .submit_s = submit_s,
                           .restart_s = static_cast<double>(draw_.below(3))};
      if (draw_.coin()) draft.deadline_s = submit_s + static_cast<double>(draw_.below(80));
      if (draw_.coin()) {
        draft.curve = {{1, 1}, {2, 1.7}, {4, 2.5}, {6, 3}};
        draft.batch = static_cast<int>(draw_.below(3));
      }
      auto spec = std::make_shared<JobSpec>(*draft.spec());
      spec->preemptible = draw_.below(6) != 0;
      spec->weight = draw_.coin() ? 1 : 2;
      spec->user = draw_.coin() ? "ann" : "bob";
      auto speed = draft.speed();
      if (draft.curve.empty() && draw_.coin())
        speed = std::make_shared<TypedSpeed>(table, draw_.below(3));
      workload.jobs.push_back({spec, time_at(submit_s), draft.work, speed});
      submit_s += static_cast<double>(draw_.below(2) * draw_.below(10));
    }
    return workload;
  }

  // As the daemon does: written down, read, and only then folded.
  void post(Time now, const Event& event) {
    Coded coded = must(encode(event));
    Reaction reaction;
    scheduler_.on(now, must(decode_event(coded, pool_)), reaction);
    engine_.carry_out(now, reaction.commands);
    entries.push_back({now, std::move(coded)});
    answers.push_back(answer_of(reaction));
  }

  static Answer answer_of(const Reaction& reaction) {
    Answer answer;
    answer.refused = reaction.refused;
    for (const auto& command : reaction.commands) answer.commands.push_back(must(encode(command)));
    return answer;
  }

  static Answer answer(const Entry& entry, Scheduler& scheduler, Policy& policy, SpeedPool& pool) {
    if (std::holds_alternative<Asked>(entry.what)) {
      auto decision = policy.decide(scheduler.ask(entry.time));
      return {must(encode(Event(Decided{must(decision)}))).body, {}, ""};
    }
    Reaction reaction;
    scheduler.on(entry.time, must(decode_event(std::get<Coded>(entry.what), pool)), reaction);
    return answer_of(reaction);
  }

  Draw draw_;
  std::unique_ptr<Policy> policy_;
  std::string name_;
  Cluster cluster_;
  Placement placement_;
  Workload workload_;
  SpeedPool pool_;
  Scheduler scheduler_;
  SimEngine engine_;
};

class EveryPolicy : public ::testing::TestWithParam<std::string> {};

TEST_P(EveryPolicy, GoesOnFromAStateThatWasKeptAsIfNothingHadHappened) {
  std::size_t commands = 0;
  for (std::uint64_t seed = 0; seed < tries(8); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Life life(GetParam(), seed);
    life.run(120);
    for (const auto& answer : life.answers) commands += answer.commands.size();
    for (int trial = 0; trial < 4; ++trial) {
      const std::size_t cut = Draw(seed * 7 + static_cast<std::uint64_t>(trial))
                                  .below(std::max<std::size_t>(life.entries.size(), 1));
      const auto found = life.cut_at(cut);
      ASSERT_EQ(found.size(), life.answers.size());
      for (std::size_t i = 0; i < found.size(); ++i) {
        ASSERT_EQ(found[i].decision, life.answers[i].decision) << "cut " << cut << ", entry " << i;
        ASSERT_EQ(found[i].refused, life.answers[i].refused) << "cut " << cut << ", entry " << i;
        ASSERT_EQ(found[i].commands, life.answers[i].commands) << "cut " << cut << ", entry " << i;
      }
    }
  }
  EXPECT_GT(commands, tries(30)) << "or nothing was tested";
}

std::vector<std::string> names_of_all() {
  std::vector<std::string> names;
  for (const auto& entry : all_policies()) names.push_back(entry.name);
  return names;
}

INSTANTIATE_TEST_SUITE_P(Codec, EveryPolicy, ::testing::ValuesIn(names_of_all()),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

std::string state_problem(const std::function<void(Json&)>& change) {
  Scheduler scheduler(cluster_of("2x4"), Placement::count);
  Reaction reaction;
  scheduler.on(kStart, Submitted{job_id(0), rigid_spec(2), std::make_shared<ConstantSpeed>(1), 5},
               reaction);
  scheduler.on(kStart, Submitted{job_id(1), rigid_spec(2), std::make_shared<ConstantSpeed>(1), 5},
               reaction);
  Decision decision;
  decision.as_of = scheduler.ask(kStart).as_of;
  decision.run = {grant_count(0, 2), grant_count(1, 2)};
  scheduler.on(kStart, Decided{decision}, reaction);
  Coded coded = encode(scheduler.state()).value();
  Json json = Json::parse(coded.body);
  change(json);
  coded.body = json.dump();
  SpeedPool pool;
  const auto state = decode_state(coded, pool);
  return state ? "accepted" : state.error().message;
}

TEST(State, ThatContradictsItselfIsRefused) {
  EXPECT_EQ(state_problem([](Json&) {}), "accepted");
  EXPECT_EQ(state_problem([](Json& s) { s["jobs"][1]["target"] = s["jobs"][0]["target"]; }),
            "state: job 1 is to have GPUs that another is to have");
  EXPECT_EQ(state_problem([](Json& s) { s["jobs"][0]["held"]["slices"][0][1] = 16; }),
            "state: job 0 has GPUs that the cluster does not have");
  EXPECT_EQ(state_problem([](Json& s) { s["jobs"][0]["held"]["slices"][0][0] = 2; }),
            "state: job 0 has GPUs that the cluster does not have");
  EXPECT_EQ(state_problem([](Json& s) { s["jobs"][0]["shares_with"] = 1; }),
            "state: job 0 shares GPUs with a job that does not share them");
  EXPECT_EQ(state_problem([](Json& s) { s["jobs"][0]["speed"] = 2; }),
            "state.jobs[0].speed: must be the number of a listed speed");
  EXPECT_EQ(state_problem([](Json& s) { s["jobs"][0].erase("spec"); }),
            "state.jobs[0]: lacks the field \"spec\"");
  EXPECT_EQ(state_problem([](Json& s) { s["jobs"][1]["id"] = 0; }),
            "state.jobs[1]: must be a job with an id above the one before and below next_job");
  EXPECT_EQ(state_problem([](Json& s) { s["next_job"] = 1; }),
            "state.jobs[1]: must be a job with an id above the one before and below next_job");
  EXPECT_EQ(state_problem([](Json& s) { s["next_job"] = 4'000'000'000U; }),
            "state: must be of at most 50000000 jobs");
  EXPECT_EQ(state_problem([](Json& s) { s["told"] = 9; }),
            "state: must be a state that has told of no more jobs than have changed");
  EXPECT_EQ(state_problem([](Json& s) { s["waiting_on"] = Json::parse("[[2,[0]]]"); }),
            "state.waiting_on[0]: must be a node and the jobs that wait there");
  EXPECT_EQ(state_problem([](Json& s) { s["cluster"]["groups"][0][0] = 2'000'000'000; }),
            "state.cluster.groups[0]: must be nodes (up to 100000 in all) of 1 to 64 GPUs of a "
            "type");
}

TEST(State, KeepsWhoSharesASpeedAndAdmitsTheNextToIt) {
  Scheduler scheduler(cluster_of("2x4"), Placement::count);
  Reaction reaction;
  const auto shared = std::make_shared<ConstantSpeed>(1);
  for (const std::size_t job : {0U, 1U})
    scheduler.on(kStart, Submitted{job_id(job), rigid_spec(1), shared, 5}, reaction);
  scheduler.on(kStart, Submitted{job_id(2), rigid_spec(1), std::make_shared<ConstantSpeed>(1), 5},
               reaction);
  scheduler.on(kStart, Finished{job_id(1), Generation()}, reaction);
  auto table = std::make_shared<ThroughputTable>(2, 1);
  table->set_alone(0, GpuType(), 1, 2);
  const auto typed = std::make_shared<TypedSpeed>(table, 0);
  scheduler.on(kStart, Submitted{job_id(3), rigid_spec(1), typed, 5}, reaction);
  SpeedPool pool;
  const State state = decode_state(encode(scheduler.state()).value(), pool).value();
  const auto speed = [&](std::size_t job) { return state.snapshot.jobs.find(job_id(job))->speed; };
  EXPECT_NE(speed(0), speed(2)) << "equal, but not one";
  EXPECT_EQ(decode_speed(encode(*shared).value(), pool).value(), speed(0));
  EXPECT_EQ(decode_speed(encode(*typed).value(), pool).value(), speed(3));
  const auto other = decode_speed(encode(TypedSpeed(table, 1)).value(), pool).value();
  EXPECT_EQ(dynamic_cast<const TypedSpeed&>(*other).table(),
            dynamic_cast<const TypedSpeed&>(*speed(3)).table());
  EXPECT_EQ(state.snapshot.jobs.next_id(), job_id(4));
}

}  // namespace
}  // namespace rubato::journal
