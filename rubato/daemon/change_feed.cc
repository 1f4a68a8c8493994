#include "rubato/daemon/change_feed.h"

#include <fmt/format.h>
#include <set>
#include <utility>

#include "rubato/base/text.h"

namespace rubato {

void ChangeFeed::publish(Change change) {
  std::function<void()> wake;
  {
    const std::lock_guard lock(mutex_);
    ring_.push_back(std::make_shared<const Numbered>(Numbered{++newest_, std::move(change)}));
    if (ring_.size() > options_.ring) ring_.pop_front();
    if (!std::exchange(woken_, true)) wake = wake_;
  }
  if (wake) wake();
}

void ChangeFeed::on_change(std::function<void()> wake) {
  const std::lock_guard lock(mutex_);
  wake_ = std::move(wake);
  woken_ = false;
}

void ChangeFeed::deliveries_begin() {
  const std::lock_guard lock(mutex_);
  woken_ = false;
}

std::uint64_t ChangeFeed::newest() const {
  const std::lock_guard lock(mutex_);
  return newest_;
}

std::optional<std::uint64_t> ChangeFeed::position_of(std::string_view id) const {
  const auto dash = id.rfind('-');
  if (dash == std::string_view::npos || id.substr(0, dash) != options_.epoch) return std::nullopt;
  const auto number = parse_integer(id.substr(dash + 1));
  if (!number || *number < 0) return std::nullopt;
  const auto position = static_cast<std::uint64_t>(*number);
  const std::lock_guard lock(mutex_);
  if (position > newest_ || newest_ - position > ring_.size()) return std::nullopt;
  return position;
}

std::string ChangeFeed::id_of(std::uint64_t position) const {
  return fmt::format("{}-{}", options_.epoch, position);
}

std::optional<ChangeFeed::Changes> ChangeFeed::collect(std::uint64_t position, const Caller& caller,
                                                       std::uint64_t& newest) const {
  const std::lock_guard lock(mutex_);
  newest = newest_;
  if (newest_ - position > ring_.size()) return std::nullopt;
  Changes found;
  std::set<std::pair<std::string_view, std::uint32_t>> seen;
  for (auto at = ring_.rbegin(); at != ring_.rend() && (*at)->number > position; ++at) {
    const Change& change = (*at)->change;
    if (!caller.admin && !change.user.empty() && change.user != caller.user) continue;
    if (!seen.emplace(change.event, change.id).second) continue;
    if (found.size() == options_.at_once) return std::nullopt;
    found.push_back(*at);
  }
  return found;
}

ChangeFeed::Delivery ChangeFeed::since(std::uint64_t position, const Caller& caller) const {
  std::uint64_t newest = 0;
  const auto found = collect(position, caller, newest);
  if (!found) return resync();
  Delivery delivery{newest, nullptr, false, found->size()};
  if (found->empty()) return delivery;
  std::string text;
  for (auto at = found->rbegin(); at != found->rend(); ++at) {
    const auto& [number, change] = **at;
    // Text that is no UTF-8 must not take the daemon down.
    const auto data = change.body.dump(-1, ' ', false, Json::error_handler_t::replace);
    text += fmt::format("id: {}\nevent: {}\ndata: {}\n\n", id_of(number), change.event, data);
  }
  delivery.bytes = std::make_shared<const std::string>(std::move(text));
  return delivery;
}

ChangeFeed::Delivery ChangeFeed::resync() const {
  const auto position = newest();
  return {position,
          std::make_shared<const std::string>(
              fmt::format("id: {}\nevent: resync\ndata: {{}}\n\n", id_of(position))),
          true, 1};
}

const ChangeFeed::Delivery& SharedDeliveries::since(std::uint64_t position, const Caller& caller) {
  auto key = std::tuple(position, caller.admin, caller.admin ? std::string() : caller.user);
  auto found = made_.find(key);
  if (found == made_.end()) {
    found = made_.emplace(std::move(key), feed_.since(position, caller)).first;
  }
  return found->second;
}

}  // namespace rubato
