#include "rubato/wire/signals.h"

#include <cerrno>
#include <csignal>
#include <sys/signalfd.h>
#include <ucontext.h>
#include <unistd.h>

#include "rubato/base/check.h"

namespace rubato::wire {
namespace {

// Runs in a thread that does not block the signal. The thread blocks it from now on (the mask is
// taken from the context when this returns), and the signal is sent again. When all threads block
// it, the signal waits until it is read.
void pass_on(int signal, siginfo_t* /*info*/, void* context) {
  const int error = errno;
  sigaddset(&static_cast<ucontext_t*>(context)->uc_sigmask, signal);
  kill(getpid(), signal);
  errno = error;
}

}  // namespace

Fd take_signals(const std::vector<int>& signals) {
  sigset_t set;
  sigemptyset(&set);
  for (const int signal : signals) sigaddset(&set, signal);
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
  for (const int signal : signals) {
    struct sigaction action {};
    action.sa_sigaction = pass_on;
    action.sa_flags = SA_SIGINFO | SA_RESTART;
    CHECK(sigaction(signal, &action, nullptr) == 0);
  }
  Fd fd(signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC));
  CHECK(fd.valid());
  return fd;
}

}  // namespace rubato::wire
