#include "rubato/http/event_stream.h"

#include <fmt/format.h>

namespace rubato::http {
namespace {

constexpr std::chrono::milliseconds kAfterResync{1000};

}  // namespace

void EventStream::count(const ChangeFeed::Delivery& delivery) {
  metrics_.events += delivery.events;
  metrics_.resyncs += delivery.resync ? 1 : 0;
}

std::string EventStream::begin(const std::string& last_event_id) {
  std::string text = ": changes\n\n";
  position_ = feed_.newest();
  if (last_event_id.empty()) return text;
  const auto position = feed_.position_of(last_event_id, caller_);
  const auto missed = position ? feed_.since(*position, caller_) : feed_.resync();
  position_ = missed.position;
  if (missed.bytes) text += *missed.bytes;
  count(missed);
  return text;
}

EventStream::Next EventStream::next(SharedDeliveries& deliveries, std::uint64_t newest, Time now) {
  if (position_ >= newest) return {};
  // A client that has not read the last delivery keeps its position. When it has fallen too far
  // behind, it gets a resync.
  if (sending_ || now < not_before_) return {nullptr, true};
  const auto& delivery = deliveries.since(position_, caller_);
  position_ = delivery.position;
  if (!delivery.bytes) return {};
  count(delivery);
  if (delivery.resync) not_before_ = now + kAfterResync;
  return {delivery.bytes, false};
}

EventStream::Bytes EventStream::heartbeat(std::chrono::milliseconds silence, Time now) const {
  if (now - sent_ < silence) return nullptr;
  // An id without data updates the position from which the client would resume.
  return std::make_shared<const std::string>(fmt::format(":\nid: {}\n\n", feed_.id_of(position_)));
}

}  // namespace rubato::http
