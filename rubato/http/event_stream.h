// One watcher of events: a position in the order of changes, and the bytes on their way to the
// client. No I/O: it says which bytes to send, and is told when they are written. The clock is an
// input.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include "rubato/http/change_feed.h"
#include "rubato/http/server_metrics.h"

namespace rubato::http {

class EventStream {
 public:
  using Time = std::chrono::steady_clock::time_point;
  using Bytes = std::shared_ptr<const std::string>;

  // Counts what it sends in `metrics`.
  EventStream(const ChangeFeed& feed, Caller caller, HttpMetrics& metrics)
      : feed_(feed), caller_(std::move(caller)), metrics_(metrics) {}

  // The first bytes after the head of the answer. If the client names the last event that it has
  // seen, it gets the events after it.
  [[nodiscard]] std::string begin(const std::string& last_event_id);

  struct Next {
    Bytes bytes;        // nullptr: nothing to send
    bool wait = false;  // there is something, but it is too early: ask again
  };
  [[nodiscard]] Next next(SharedDeliveries& deliveries, std::uint64_t newest, Time now);
  // A comment line if nothing was sent for `silence`, else nullptr.
  [[nodiscard]] Bytes heartbeat(std::chrono::milliseconds silence, Time now) const;

  void sending() { sending_ = true; }
  void written(Time now) {
    sending_ = false;
    sent_ = now;
  }
  [[nodiscard]] bool is_sending() const { return sending_; }

 private:
  void count(const ChangeFeed::Delivery& delivery);

  const ChangeFeed& feed_;
  const Caller caller_;
  HttpMetrics& metrics_;
  std::uint64_t position_ = 0;
  bool sending_ = false;
  Time sent_{};
  Time not_before_{};  // the earliest time of the next delivery
};

}  // namespace rubato::http
