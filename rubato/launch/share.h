// A share: the process that starts and watches the workers of one host for the master of a job that
// spans hosts (`rubato share`). ShareState has its rules.
//
// It dials the master, and dials again when the connection breaks. If a cluster manager started it,
// a file says where the master is (share_files.h); the share reads it again while it has no master,
// because a new master listens elsewhere, and tells its workers by a file of its own. What its
// workers print goes to the master. While the connection is slow or broken, the newest lines of
// each worker are kept, because they say why it ended, and older ones are left out and counted. Its
// workers die with it. A share that hears of no master for long kills its workers and ends.
//
// If somebody else tells it to end (SIGTERM: a preemption, a time limit), it tells the master, so
// that its workers can leave, and ends when they have, or after kLeaveWithin.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
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

// What a share knows by itself.
struct ShareProcess {
  ShareConfig config;       // empty, if it comes from the file
  std::string config_file;  // empty: the config never changes
  std::string directory;    // of this user alone, for keys and secrets of the workers
  Environment environment;  // of this host
  std::string native;       // the manager's own id of this process; empty: not known
};

class Share {
 public:
  explicit Share(ShareProcess process);
  Share(const Share&) = delete;
  Share& operator=(const Share&) = delete;
  ~Share();

  // Until the master ends the share. Returns the exit code.
  [[nodiscard]] int run();

 private:
  using Clock = std::chrono::steady_clock;
  // Lines of one worker that wait for the master.
  struct KeptOutput {
    std::int64_t left_out = 0;  // older lines
    std::deque<ShareOutput> lines{};
    std::size_t bytes = 0;
  };

  void watch_signals();
  [[nodiscard]] std::chrono::milliseconds tick() const;
  void asked_to_end(int signal);
  void read_config(Clock::time_point now);
  void take_config(ShareConfig config);
  void dial();
  void lost();
  void hear();
  void keep_link(Clock::time_point now);
  void obey(const ShareStart& message);
  void obey(const ShareSignal& message);
  void obey(const wire::EndsKept& kept);
  void obey(const ShareSecret& secret);
  void obey(const ShareAskPort& ask);
  void obey(const ShareEnd&);
  void obey(const ShareBeat&) {}
  void say(const FromShare& message);
  void say_status();
  void output(Uid uid, bool is_err, std::string_view line);
  [[nodiscard]] bool has_room() const;
  void say_output(Uid uid);
  void say_kept_output();
  void ended(Uid uid, ProcessEnd end);
  [[nodiscard]] Result<std::string> key_file(const wire::JobKey& key);
  [[nodiscard]] Environment environment_for(const ShareStart& message,
                                            const std::string& key) const;
  void add_devices(Environment& environment, int device) const;

  ShareProcess process_;
  ShareConfig config_;  // the newest
  std::string directory_;
  Environment environment_;
  std::string instance_;
  std::string own_address_;  // that leads to the master
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
  std::map<Uid, KeptOutput> kept_output_;
  std::map<std::string, std::string> secrets_;  // NAME -> path of the file
  Clock::time_point read_at_;                   // of the config, next
  std::optional<int> leaving_;                  // this signal has told us to end
  Clock::time_point leave_until_;
  std::optional<int> ending_;  // with this exit code, when the last worker has ended
};

}  // namespace rubato::launch
