// JSON for all that the journal stores: events, commands, and the state at a snapshot, with the
// values they are made of.
//
// Exact: doubles read back to the bit, times are integer microseconds, and what has been read is
// what was written. Canonical: a value has one text (base/json.h), so texts may be compared.
// Total: any bytes give a value or one sentence; unknown and missing fields are refused, because a
// row that is half understood must not be folded. Each type has a version, which covers all that is
// inside of it; a newer one is refused, an older one would be brought up to date here.
//
// Speeds are objects, and who groups equal jobs compares their addresses. A SpeedPool makes that
// repeatable: equal speeds are decoded to one object. Whoever wants to replay its own decisions
// therefore folds events as they were decoded, not as they were before they were encoded. A state
// keeps which of its jobs share an object, whatever their speeds.
//
// The truth about a simulated job (sim/profiles.h) is not encoded: nobody alive knows it.
//
// Pure; a SpeedPool belongs to one thread.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "rubato/base/json.h"
#include "rubato/base/result.h"
#include "rubato/core/command.h"
#include "rubato/core/event.h"
#include "rubato/loop/state.h"
#include "rubato/model/typed_speed.h"

namespace rubato::journal {

// A value as a row of the journal has it.
struct Coded {
  std::string type;  // "submitted", "start", "state", ...
  int version = 0;
  std::string body;
  friend bool operator==(const Coded&, const Coded&) = default;
};

// The same as JSON, for whoever puts it into JSON of its own. Its text is that of Coded once it is
// spelled by canonical_json().
struct CodedJson {
  std::string type;
  int version = 0;
  Json body;
};

// The types there are, each with the newest version that this program reads. It writes no other.
[[nodiscard]] const std::map<std::string, int, std::less<>>& coded_versions();

// The speeds that are in use, by what they say. Forgets what nobody else holds.
class SpeedPool {
 public:
  // The object in use that says the same, if there is one, or else this one from now on.
  std::shared_ptr<const SpeedModel> share(const std::string& text,
                                          std::shared_ptr<const SpeedModel> speed);
  std::shared_ptr<const ThroughputTable> share(const std::string& text,
                                               std::shared_ptr<const ThroughputTable> table);

  [[nodiscard]] std::size_t size() const { return speeds_.size() + tables_.size(); }

 private:
  template <class T>
  using ByText = std::map<std::string, std::weak_ptr<const T>, std::less<>>;

  ByText<SpeedModel> speeds_;
  ByText<ThroughputTable> tables_;
  std::size_t sweep_at_ = 64;
};

[[nodiscard]] Result<Coded> encode(const Event& event);
[[nodiscard]] Result<Coded> encode(const Command& command);
[[nodiscard]] Result<Coded> encode(const JobSpec& spec);
[[nodiscard]] Result<Coded> encode(const Allocation& gpus);
[[nodiscard]] Result<Coded> encode(const Progress& progress);
[[nodiscard]] Result<Coded> encode(const SpeedModel& speed);
[[nodiscard]] Result<Coded> encode(const Cluster& cluster);
// What can be derived (free and busy GPUs) is not stored but rebuilt. The policy's own state is not
// in it: Policy::save() is JSON already, and canonical_json() its text.
[[nodiscard]] Result<Coded> encode(const State& state);

[[nodiscard]] Result<CodedJson> encode_json(const Event& event);
[[nodiscard]] Result<CodedJson> encode_json(const Command& command);
[[nodiscard]] Result<CodedJson> encode_json(const Cluster& cluster);
[[nodiscard]] Result<CodedJson> encode_json(const State& state);

[[nodiscard]] Result<Event> decode_event(const Coded& coded, SpeedPool& pool);
[[nodiscard]] Result<Command> decode_command(const Coded& coded);
[[nodiscard]] Result<Command> decode_command_json(const CodedJson& coded);
[[nodiscard]] Result<JobSpec> decode_job_spec(const Coded& coded);
[[nodiscard]] Result<Allocation> decode_allocation(const Coded& coded);
[[nodiscard]] Result<Progress> decode_progress(const Coded& coded);
[[nodiscard]] Result<std::shared_ptr<const SpeedModel>> decode_speed(const Coded& coded,
                                                                     SpeedPool& pool);
[[nodiscard]] Result<Cluster> decode_cluster(const Coded& coded);
[[nodiscard]] Result<Cluster> decode_cluster_json(const CodedJson& coded);
// Refuses a state that contradicts itself, so that what it gives can be folded on. `pool` learns
// the speeds in it: events that follow share them, as they would have without the interruption.
[[nodiscard]] Result<State> decode_state(const Coded& coded, SpeedPool& pool);

// What a cluster in the journal may have at most.
inline constexpr int kMostStoredNodes = 100'000;

}  // namespace rubato::journal
