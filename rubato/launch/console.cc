#include "rubato/launch/console.h"

#include <algorithm>
#include <cerrno>
#include <climits>
#include <fmt/format.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

namespace rubato::launch {
namespace {

constexpr std::size_t kMostWaiting = std::size_t{4} << 20U;
constexpr std::size_t kMany = std::size_t{64} << 10U;
constexpr const char* kErase = "\r\x1b[K";

// A descriptor may be shared with other programs, so it must not be made non-blocking. But a pipe
// that poll() reports as writable takes PIPE_BUF bytes without blocking.
bool writable(int fd) {
  pollfd asked{fd, POLLOUT, 0};
  return poll(&asked, 1, 0) == 1 && asked.revents != 0;
}

bool same_file(int one, int other) {
  struct stat first {};
  struct stat second {};
  return fstat(one, &first) == 0 && fstat(other, &second) == 0 && first.st_dev == second.st_dev &&
         first.st_ino == second.st_ino;
}

}  // namespace

Console::Console(int out, int err, bool terminal)
    : out_{out}, err_{err}, terminal_(terminal), one_stream_(same_file(out, err)) {}

void Console::append(Stream& stream, std::string_view line) {
  if (stream.text.size() + line.size() > kMostWaiting) {
    ++stream.left_out;
    return;
  }
  if (stream.left_out > 0) {
    stream.text +=
        fmt::format("rubato: {} lines left out, because nobody read them\n", stream.left_out);
    stream.left_out = 0;
  }
  stream.text += line;
  stream.text += '\n';
}

void Console::flush(Stream& stream) {
  std::size_t done = 0;
  while (done < stream.text.size() && writable(stream.fd)) {
    const std::size_t size = std::min<std::size_t>(stream.text.size() - done, PIPE_BUF);
    const ssize_t written = write(stream.fd, stream.text.data() + done, size);
    if (written > 0) {
      done += static_cast<std::size_t>(written);
    } else if (errno != EINTR && errno != EAGAIN) {
      done = stream.text.size();  // the reader is gone, so nobody needs the text
    } else {
      break;
    }
  }
  stream.text.erase(0, done);
}

void Console::flush() {
  flush(out_);
  flush(err_);
}

void Console::print(Stream& stream, std::string_view line) {
  if (!status_.empty()) {
    err_.text += kErase;
    flush(err_);
  }
  append(stream, line);
  if (terminal_ || stream.text.size() > kMany) flush(stream);
  if (!status_.empty()) {
    err_.text += status_;
    flush(err_);
  }
}

void Console::status(const std::string& text) {
  if (!terminal_ || text == status_) return;
  // If nobody reads the terminal, there is no use in painting the status again and again.
  if (err_.text.empty()) err_.text += kErase + text;
  status_ = text;
  flush(err_);
}

void Console::finish(std::chrono::milliseconds longest) {
  status("");
  const auto until = std::chrono::steady_clock::now() + longest;
  for (Stream* stream : {&out_, &err_}) {
    flush(*stream);
    while (!stream->text.empty() && std::chrono::steady_clock::now() < until) {
      pollfd asked{stream->fd, POLLOUT, 0};
      poll(&asked, 1, 100);
      flush(*stream);
    }
  }
}

}  // namespace rubato::launch
