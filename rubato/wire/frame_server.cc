#include "rubato/wire/frame_server.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace rubato::wire {

FrameServer::FrameServer(Poller& poller, Handlers handlers)
    : poller_(poller), handlers_(std::move(handlers)) {}

FrameServer::~FrameServer() {
  for (const auto& [key, stream] : connections_) {
    if (stream.open()) poller_.remove(stream.fd());
  }
  if (listener_.valid()) poller_.remove(listener_.get());
}

void FrameServer::listen(Fd listener, FindLinkKey find) {
  if (listener_.valid()) poller_.remove(listener_.get());
  listener_ = std::move(listener);
  find_ = std::move(find);
  poller_.add(listener_.get(), [this](Poller::Ready) { accept_all(); });
}

void FrameServer::accept_all() {
  for (;;) {
    Fd fd = accept_from(listener_);
    if (!fd.valid()) return;
    const int key = next_key_++;
    const int number = fd.get();
    connections_.emplace(
        key, find_ ? FrameStream(Link(std::move(fd), find_)) : FrameStream(std::move(fd)));
    poller_.add(number, [this, key](Poller::Ready what) { ready(key, what); });
    if (find_) strangers_.insert(key);
    if (strangers_.size() > kMostStrangers) drop_old_strangers();
  }
}

void FrameServer::drop_old_strangers() {
  std::erase_if(strangers_, [this](int key) { return !contains(key) || !peer(key).empty(); });
  while (strangers_.size() > kMostStrangers) {
    const int oldest = *strangers_.begin();
    strangers_.erase(strangers_.begin());
    drop(oldest);
  }
}

std::string FrameServer::peer(int key) const {
  const auto found = connections_.find(key);
  return found == connections_.end() ? "" : found->second.link().peer();
}

void FrameServer::ready(int key, Poller::Ready ready) {
  if (ready.out) {
    FrameStream& stream = connections_.at(key);
    stream.flush();
    wait_for_room(stream);
  }
  if (ready.in) read(key);
  handlers_.handled();
}

void FrameServer::read(int key) {
  const auto found = connections_.find(key);
  if (found == connections_.end() || !found->second.open()) return;
  const int number = found->second.fd();
  const std::vector<Json> messages = found->second.receive();
  const bool ended = !found->second.open();
  if (ended) {
    poller_.remove(number);
  } else {
    wait_for_room(found->second);
  }
  for (const Json& message : messages) {
    if (!contains(key)) return;
    handlers_.message(key, message);
  }
  if (ended) drop(key);
}

void FrameServer::drop(int key) {
  const auto found = connections_.find(key);
  if (found == connections_.end()) return;
  if (found->second.open()) poller_.remove(found->second.fd());
  connections_.erase(found);
  handlers_.dropped(key);
}

void FrameServer::send(int key, const Json& message) {
  const auto found = connections_.find(key);
  if (found == connections_.end() || !found->second.open()) return;
  FrameStream& stream = found->second;
  stream.send(message);
  wait_for_room(stream);
}

void FrameServer::wait_for_room(const FrameStream& stream) {
  if (stream.open()) poller_.want_out(stream.fd(), stream.wants_out());
}

bool FrameServer::unsent(int key) const {
  const auto found = connections_.find(key);
  return found != connections_.end() && found->second.unsent();
}

bool FrameServer::any_unsent() const {
  return std::any_of(connections_.begin(), connections_.end(),
                     [](const auto& entry) { return entry.second.unsent(); });
}

}  // namespace rubato::wire
