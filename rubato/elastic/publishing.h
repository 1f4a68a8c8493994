// Remembers which steps the launcher has been told about.
//
// A step is published when the step after it completes, because that proves that all workers have
// applied it. The leader publishes. The others keep their reports until the leader's word says that
// it has published them, because it may die before. The next leader publishes what is left. So the
// launcher hears of every step at least once.
//
// For the trainer's thread.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <utility>

#include "rubato/elastic/session.h"

namespace rubato::elastic {

class Publishing {
 public:
  explicit Publishing(std::function<void(const Json&)> publish) : publish_(std::move(publish)) {}

  // A step has completed. This proves that all workers have applied the steps before it.
  void completed(const Session::Completed& completed, member::Uid self);
  // This worker has applied the step of this report.
  void applied(Json report) { unpublished_.push_back(std::move(report)); }
  void publish_all();

  // The last step that this worker has published.
  [[nodiscard]] std::int64_t published() const { return published_; }

  // For a checkpoint: the reports of steps that were applied and may not have been published.
  [[nodiscard]] Json to_json() const { return unpublished_; }
  void take(const Json& json) { unpublished_ = json.get<std::deque<Json>>(); }

 private:
  std::function<void(const Json&)> publish_;
  std::deque<Json> unpublished_;
  std::int64_t published_ = 0;
};

}  // namespace rubato::elastic
