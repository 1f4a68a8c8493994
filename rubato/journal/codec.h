// The JSON of everything that the journal stores: events, commands, the state at a snapshot, and
// the values inside them.
//
// Exact: doubles are read back to the bit, and times are integer microseconds. Reading gives
// exactly what was written. Canonical: a value has only one text (base/json.h), so texts can be
// compared. Total: any bytes give a value or an error of one sentence. Unknown and missing fields
// are refused, because a row that is only half understood must not be folded. Each type has a
// version, which covers everything inside it. A newer version is refused. Code here reads older
// versions.
//
// Speeds are objects. Code that groups equal jobs compares the addresses of their speeds. A
// SpeedPool makes the result repeatable: equal speeds are decoded to one object. So code that must
// be able to replay its decisions folds events as they were decoded, not as they were before
// encoding. A state also stores which of its jobs share a speed object.
//
// The true behaviour of a simulated job (sim/profiles.h) is never encoded, because a live cluster
// does not know it.
//
// Pure. A SpeedPool belongs to one thread.
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

// A value as it is stored in a row of the journal.
struct Coded {
  std::string type;  // "submitted", "start", "state", ...
  int version = 0;
  std::string body;
  friend bool operator==(const Coded&, const Coded&) = default;
};

// The same as JSON, for callers that put it inside other JSON. canonical_json(body) gives the text
// of Coded.
struct CodedJson {
  std::string type;
  int version = 0;
  Json body;
};

// All types, each with the newest version that this program reads. It writes only that version.
[[nodiscard]] const std::map<std::string, int, std::less<>>& coded_versions();

// The speeds in use, by their text. A speed that nobody else uses any more is dropped.
class SpeedPool {
 public:
  // Returns the object in use that has this text. If there is none, this one is used from now on.
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
// Values that can be computed (free and busy GPUs) are not stored. The policy's own state is not
// part of it: Policy::save() is JSON already.
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
// Refuses a state that contradicts itself, so that events can be folded into the result. `pool`
// gets the speeds of the state, so that later events share them as they would without a restart.
[[nodiscard]] Result<State> decode_state(const Coded& coded, SpeedPool& pool);

// The most nodes of a cluster in the journal.
inline constexpr int kMostStoredNodes = 100'000;

}  // namespace rubato::journal
