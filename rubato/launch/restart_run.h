// A run of an unmodified program: one process per rank, as torchrun starts them.
//
// Every change of the number of workers, and every failure, ends all processes (SIGTERM, the grace
// period, SIGKILL). Then all start again with the new world size. They keep only what they wrote to
// their own checkpoint. Pure, like LiveRun.
#pragma once

#include "rubato/launch/launch_state.h"

namespace rubato::launch {

class RestartRun : public LaunchState {
 public:
  using LaunchState::LaunchState;

  void begin(Time now) override;
  void adopt(Time now, const AdoptedRun& run) override;
  void replace(Time now, Uid uid) override;
  // These programs send no messages.
  [[nodiscard]] bool said_hello(Time, const wire::Hello&) override { return false; }
  void heard(Time, Uid, const wire::FromWorker&) override {}
  [[nodiscard]] bool settled() const override;

 private:
  void on_exit(Time now, Uid uid, const Worker& worker, ProcessEnd end) override;
  void on_resize(Time now) override;
  void on_place(Time now) override { on_resize(now); }
  void on_pass(Time now) override;
  [[nodiscard]] bool on_quiet() const override { return !killed_at_; }
  int ask_to_end() override;

  void failed(Time now, Uid uid, const Worker& worker, ProcessEnd end);
  void interrupt(Time now);

  // Set while all processes are being ended for a new round: the time at which the remaining ones
  // are killed.
  std::optional<Time> killed_at_;
  Time round_began_;
};

}  // namespace rubato::launch
