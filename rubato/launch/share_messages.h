// The messages between the master of a job that spans hosts and its shares, and what a share is
// told when it is started. wire/roster_messages.h has the rules that go with them.
//
// Every message is a JSON object with "type". Unknown fields are ignored, so that one side may be
// newer.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <string>
#include <variant>

#include "rubato/launch/process_end.h"
#include "rubato/launch/worker_host.h"
#include "rubato/wire/job_key.h"
#include "rubato/wire/roster_messages.h"

namespace rubato::launch {

// Both sides, and a master and its workers: how often something is said, and after which silence a
// connection is closed.
constexpr std::chrono::milliseconds kShareBeat{500};
constexpr std::chrono::milliseconds kShareSilence{5000};
// A share that says nothing for so long may be cut off, and its workers with it. They may have
// spoken a moment before it did for the last time, so this is far below the silence of a worker
// that hangs.
constexpr std::chrono::milliseconds kShareLate{1500};

// A share reads this from its standard input, or from a file of its user alone: the secret is
// neither in an argument nor in the environment, where others could see it.
struct ShareConfig {
  std::string master;  // its address
  std::string identity;
  std::string name;
  std::string secret;   // of this share
  std::string address;  // of this host, for its peers; empty: the one that leads to the master
  bool ended = false;   // the share must end; all else but its name is then empty
  friend bool operator==(const ShareConfig&, const ShareConfig&) = default;
};
[[nodiscard]] Json to_json(const ShareConfig& config);
[[nodiscard]] Result<ShareConfig> parse_share_config(const Json& json);

// From the master.
struct ShareStart {
  wire::StartOrder order;
  WorkerStart start;
  wire::JobKey key;  // of the round
};
struct ShareSignal {
  wire::KillOrder order;
  int signal = 0;
};
// A secret of the job, before the first start. Workers find it in a file that the variable names.
struct ShareSecret {
  std::string name;  // of the variable
  std::string content;
};
// For the ranks of a round of programs that do not know Rubato: where should they meet? Only the
// host of rank 0 knows which of its ports is free.
struct ShareAskPort {
  std::int64_t round = 0;
};
struct ShareEnd {};  // kill all workers, and end
struct ShareBeat {};
using ToShare = std::variant<ShareStart, ShareSignal, wire::EndsKept, ShareSecret, ShareAskPort,
                             ShareEnd, ShareBeat>;

// From a share.
struct ShareStatus {
  wire::ShareHello hello;
  std::map<Uid, ProcessEnd> ends;  // of hello.ended
  // The share was told to end by somebody else, and does so when its workers have left. If they do
  // not leave in time, their end is not their fault.
  bool leaving = false;
};
struct ShareStarted {
  Uid uid = 0;
  ProcessName process;
};
struct ShareTrouble {  // it could not be started; that it has ended follows
  Uid uid = 0;
  std::string why;
  bool shortage = false;
};
struct ShareOutput {
  Uid uid = 0;
  bool is_err = false;
  std::string line;
};
struct SharePort {
  std::int64_t round = 0;
  std::string address;  // without a port
  int port = 0;         // 0: none is free
};
using FromShare =
    std::variant<ShareStatus, ShareStarted, ShareTrouble, ShareOutput, SharePort, ShareBeat>;

[[nodiscard]] Json to_json(const ToShare& message);
[[nodiscard]] Json to_json(const FromShare& message);
[[nodiscard]] Result<ToShare> parse_to_share(const Json& json);
[[nodiscard]] Result<FromShare> parse_from_share(const Json& json);

}  // namespace rubato::launch
