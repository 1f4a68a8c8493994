#include "rubato/wire/poller.h"

#include <array>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "rubato/base/check.h"

namespace rubato::wire {

Poller::Poller()
    : epoll_(epoll_create1(EPOLL_CLOEXEC)), wake_(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {
  CHECK(epoll_.valid() && wake_.valid());
  add(wake_.get(), [this](Ready) {
    std::uint64_t count = 0;
    [[maybe_unused]] const auto size = read(wake_.get(), &count, sizeof(count));
    run_posted();
  });
}

void Poller::add(int fd, Callback callback, bool want_out) {
  auto watch = std::make_shared<Watch>();
  watch->callback = std::move(callback);
  watch->events = EPOLLIN | (want_out ? EPOLLOUT : 0U);
  epoll_event event{};
  event.events = watch->events;
  event.data.fd = fd;
  CHECK(epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) == 0);
  watches_[fd] = std::move(watch);
}

void Poller::update(int fd, Watch& watch, std::uint32_t events) {
  if (watch.events == events) return;
  watch.events = events;
  epoll_event event{};
  event.events = events;
  event.data.fd = fd;
  CHECK(epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, fd, &event) == 0);
}

void Poller::want_out(int fd, bool wanted) {
  const auto found = watches_.find(fd);
  if (found == watches_.end()) return;
  const std::uint32_t others = found->second->events & ~static_cast<std::uint32_t>(EPOLLOUT);
  update(fd, *found->second, others | (wanted ? EPOLLOUT : 0U));
}

void Poller::want_in(int fd, bool wanted) {
  const auto found = watches_.find(fd);
  if (found == watches_.end()) return;
  const std::uint32_t others = found->second->events & ~static_cast<std::uint32_t>(EPOLLIN);
  update(fd, *found->second, others | (wanted ? EPOLLIN : 0U));
}

void Poller::remove(int fd) {
  if (watches_.erase(fd) != 0) epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr);
}

void Poller::wait(std::chrono::milliseconds timeout) {
  std::array<epoll_event, 64> events{};
  const int count = epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()),
                               static_cast<int>(timeout.count()));
  for (int i = 0; i < count; ++i) {
    const epoll_event& event = events.at(static_cast<std::size_t>(i));
    // An earlier callback of this round may have removed it.
    const auto found = watches_.find(event.data.fd);
    if (found == watches_.end()) continue;
    const std::shared_ptr<Watch> watch = found->second;
    watch->callback({.in = (event.events & (EPOLLIN | EPOLLHUP | EPOLLERR)) != 0,
                     .out = (event.events & (EPOLLOUT | EPOLLHUP | EPOLLERR)) != 0});
  }
}

void Poller::post(std::function<void()> task) {
  {
    const std::lock_guard lock(mutex_);
    posted_.push_back(std::move(task));
  }
  const std::uint64_t one = 1;
  [[maybe_unused]] const auto size = write(wake_.get(), &one, sizeof(one));
}

void Poller::run_posted() {
  std::vector<std::function<void()>> tasks;
  {
    const std::lock_guard lock(mutex_);
    tasks.swap(posted_);
  }
  for (auto& task : tasks) task();
}

}  // namespace rubato::wire
