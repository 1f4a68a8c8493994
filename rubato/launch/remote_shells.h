// Shares that are started on each host by a remote shell (ssh), which is told by standard input
// where the master listens and what the share's secret is. What the remote shell and the share
// itself print is shown.
#pragma once

#include <functional>
#include <map>
#include <string>

#include "rubato/launch/console.h"
#include "rubato/launch/hosts.h"
#include "rubato/launch/process.h"
#include "rubato/launch/share_starter.h"
#include "rubato/wire/poller.h"

namespace rubato::launch {

class RemoteShells : public ShareStarter {
 public:
  // `say`: to people.
  RemoteShells(wire::Poller& poller, HostsSpec spec, std::function<void(const std::string&)> say);
  ~RemoteShells() override;

  // The name of a share is that of its host.
  void start(const ShareConfig& config) override;
  void end(const ShareName& /*share*/) override {}
  [[nodiscard]] bool over(const ShareName& share) const override;
  void finish() override;

 private:
  struct Shell {
    Process process;
    LineCutter out, err;
    bool ended = false;
  };

  void watch(const ShareName& name);
  void read_output(const ShareName& name, bool is_err);
  void ended(const ShareName& name);

  wire::Poller& poller_;
  HostsSpec spec_;
  std::function<void(const std::string&)> say_;
  std::map<ShareName, Shell> shells_;
  bool ending_ = false;
};

}  // namespace rubato::launch
