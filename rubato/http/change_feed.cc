#include "rubato/http/change_feed.h"

#include <algorithm>
#include <fmt/format.h>
#include <utility>

#include "rubato/base/text.h"

namespace rubato::http {

const Json& News::body_for(const Caller& caller) const {
  if (caller.admin) return for_admins ? *for_admins : body;
  const auto own = for_users.find(caller.user);
  return own != for_users.end() ? own->second : body;
}

void ChangeFeed::publish(News change) {
  std::function<void()> wake;
  {
    const std::lock_guard lock(mutex_);
    auto& number = number_of_[{change.event, change.id}];
    if (number != 0) changes_.erase(number);
    number = ++newest_;
    changes_.emplace(number, std::make_shared<const Numbered>(Numbered{number, std::move(change)}));
    if (changes_.size() > options_.things) forget_oldest();
    if (!std::exchange(woken_, true)) wake = wake_;
  }
  if (wake) wake();
}

void ChangeFeed::forget_oldest() {
  const auto oldest = changes_.begin();
  const News& change = oldest->second->change;
  number_of_.erase({change.event, change.id});
  forgotten_[change.user] = oldest->first;
  forgotten_of_all_ = oldest->first;
  changes_.erase(oldest);
}

std::uint64_t ChangeFeed::forgotten(const Caller& caller) const {
  if (caller.admin) return forgotten_of_all_;
  std::uint64_t number = 0;
  for (const auto& user : {std::string(), caller.user}) {
    const auto found = forgotten_.find(user);
    if (found != forgotten_.end()) number = std::max(number, found->second);
  }
  return number;
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

std::optional<std::uint64_t> ChangeFeed::position_of(std::string_view id,
                                                     const Caller& caller) const {
  const auto dash = id.rfind('-');
  if (dash == std::string_view::npos || id.substr(0, dash) != options_.epoch) return std::nullopt;
  const auto number = parse_integer(id.substr(dash + 1));
  if (!number || *number < 0) return std::nullopt;
  const auto position = static_cast<std::uint64_t>(*number);
  const std::lock_guard lock(mutex_);
  if (position > newest_ || position < forgotten(caller)) return std::nullopt;
  return position;
}

std::string ChangeFeed::id_of(std::uint64_t position) const {
  return fmt::format("{}-{}", options_.epoch, position);
}

std::optional<ChangeFeed::Changes> ChangeFeed::collect(std::uint64_t position, const Caller& caller,
                                                       std::uint64_t& newest) const {
  const std::lock_guard lock(mutex_);
  newest = newest_;
  if (position < forgotten(caller)) return std::nullopt;
  Changes found;
  for (auto at = changes_.upper_bound(position); at != changes_.end(); ++at) {
    const News& change = at->second->change;
    if (!caller.admin && !change.user.empty() && change.user != caller.user) continue;
    if (found.size() == options_.at_once) return std::nullopt;
    found.push_back(at->second);
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
  for (const auto& one : *found) {
    const auto& [number, change] = *one;
    // A text that is not UTF-8 must not stop the daemon.
    const auto data = change.body_for(caller).dump(-1, ' ', false, Json::error_handler_t::replace);
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

}  // namespace rubato::http
