// How the shares of a run come to life: a remote shell starts each one (remote_shells.h), or a
// cluster manager does, and each reads its file (share_files.h).
//
// For one thread.
#pragma once

#include <string>

#include "rubato/launch/share_messages.h"

namespace rubato::launch {

class ShareStarter {
 public:
  ShareStarter() = default;
  ShareStarter(const ShareStarter&) = delete;
  ShareStarter& operator=(const ShareStarter&) = delete;
  virtual ~ShareStarter() = default;

  // The share should run, and find its master as the config says.
  virtual void start(const ShareConfig& config) = 0;
  // It was told to end, or should not begin.
  virtual void end(const ShareName& share) = 0;
  // Whether it is known that it has ended, or could not be started.
  [[nodiscard]] virtual bool over(const ShareName& share) const = 0;
  // The master ends. Waits a moment for shares that it can see.
  virtual void finish() = 0;
};

}  // namespace rubato::launch
