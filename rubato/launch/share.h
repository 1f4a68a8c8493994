// A share: the process that starts and watches the workers of one host for the master of a job that
// spans hosts (`rubato share`). ShareState has its rules.
//
// It dials the master, and dials again when the connection breaks. What its workers print goes to
// the master; what does not fit into a buffer while the connection is slow or broken is left out
// and counted. Its workers die with it. A share that hears of no master for long kills its workers
// and ends.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "rubato/launch/local_host.h"
#include "rubato/launch/share_messages.h"
#include "rubato/launch/share_state.h"
#include "rubato/wire/frames.h"

namespace rubato::launch {

class Share {
 public:
  // `directory`: of this user alone, for the keys of the workers. `environment`: of this host.
  Share(ShareConfig config, std::string directory, Environment environment);
  Share(const Share&) = delete;
  Share& operator=(const Share&) = delete;
  ~Share();

  // Until the master ends the share. Returns the exit code.
  [[nodiscard]] int run();

 private:
  using Clock = std::chrono::steady_clock;

  void watch_signals();
  void dial();
  void lost();
  void hear();
  void keep_link(Clock::time_point now);
  void obey(const ShareStart& message);
  void obey(const ShareSignal& message);
  void obey(const wire::EndsKept& kept);
  void obey(const ShareEnd&);
  void obey(const ShareBeat&) {}
  void say(const FromShare& message);
  void say_status();
  void output(Uid uid, bool is_err, std::string_view line);
  void ended(Uid uid, ProcessEnd end);
  [[nodiscard]] Result<std::string> key_file(const wire::JobKey& key);
  [[nodiscard]] Environment environment_for(const ShareStart& message,
                                            const std::string& key) const;

  ShareConfig config_;
  std::string directory_;
  Environment environment_;
  wire::Poller poller_;
  wire::Fd signals_;
  ShareState state_;
  std::map<Uid, ProcessEnd> ends_;
  std::unique_ptr<LocalHost> host_;
  wire::FrameStream master_;
  std::int64_t connections_ = 0;
  Clock::time_point heard_ = Clock::now();
  Clock::time_point redial_at_;
  Clock::time_point beat_at_;
  bool ever_heard_ = false;
  std::map<Uid, std::int64_t> left_out_;  // lines of output
  std::optional<int> ending_;             // with this exit code, when the last worker has ended
};

}  // namespace rubato::launch
