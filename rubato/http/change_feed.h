// Changes of jobs, nodes and the policy, for watchers. The loop publishes them, and the HTTP server
// delivers them.
//
// Watchers need the present state, not each step on the way. So the feed keeps only the newest
// change of each thing, for a limited number of things. A watcher is a position in the order of
// changes. So the cost does not grow with the number of events, and all watchers of one user at the
// same position share the same bytes. A watcher may be so far behind that changes were forgotten,
// or that too much would be sent at once. It is then told to read the lists again ("resync"), and
// continues from the end.
//
// The id of an event is "EPOCH-NUMBER". Each daemon has a new epoch and counts from the beginning.
// So an id of an earlier daemon is always too old.
//
// A user never gets the changes of another user. The numbers count the changes of all users, so a
// gap tells a user that others are active, as the queue does.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "rubato/api/request.h"
#include "rubato/base/json.h"

namespace rubato::http {

struct News {
  std::string user;      // the owner; empty = visible to all
  std::string event;     // "job", "node", "policy", "decision"
  std::uint32_t id = 0;  // of the job or node: a newer change replaces an older one
  Json body;
  // If not everybody sees the same: what admins see, and what these users see.
  std::optional<Json> for_admins = std::nullopt;
  std::map<std::string, Json> for_users = {};

  [[nodiscard]] const Json& body_for(const Caller& caller) const;
};

// Thread-safe.
class ChangeFeed {
 public:
  struct Options {
    std::string epoch = "0";    // differs between daemons; letters and digits
    std::size_t things = 4096;  // how many newest changes are kept
    std::size_t at_once = 64;   // events per delivery; more are a resync
  };
  struct Delivery {
    std::uint64_t position = 0;                // the position after this delivery
    std::shared_ptr<const std::string> bytes;  // nullptr: nothing for this caller
    bool resync = false;
    std::size_t events = 0;
  };

  ChangeFeed() : ChangeFeed(Options{}) {}
  explicit ChangeFeed(Options options) : options_(std::move(options)) {}

  void publish(News change);

  // publish() calls `wake` once after each deliveries_begin(), so that the server is not woken for
  // each change. Set it while nobody publishes.
  void on_change(std::function<void()> wake);
  void deliveries_begin();

  [[nodiscard]] std::uint64_t newest() const;
  // The position at which a caller continues who has seen the event with this id. nullopt: the id
  // is too old.
  [[nodiscard]] std::optional<std::uint64_t> position_of(std::string_view id,
                                                         const Caller& caller) const;
  [[nodiscard]] std::string id_of(std::uint64_t position) const;

  // The changes after `position` that this caller may see.
  [[nodiscard]] Delivery since(std::uint64_t position, const Caller& caller) const;
  [[nodiscard]] Delivery resync() const;

 private:
  struct Numbered {
    std::uint64_t number;
    News change;
  };
  using Changes = std::vector<std::shared_ptr<const Numbered>>;

  using Thing = std::pair<std::string, std::uint32_t>;  // event and id

  void forget_oldest();
  // The last forgotten change among those that the caller may see.
  [[nodiscard]] std::uint64_t forgotten(const Caller& caller) const;
  // In order. nullopt: too many, or too old.
  [[nodiscard]] std::optional<Changes> collect(std::uint64_t position, const Caller& caller,
                                               std::uint64_t& newest) const;

  const Options options_;
  mutable std::mutex mutex_;
  std::uint64_t newest_ = 0;
  std::map<std::uint64_t, std::shared_ptr<const Numbered>> changes_;  // one per thing
  std::map<Thing, std::uint64_t> number_of_;
  std::map<std::string, std::uint64_t> forgotten_;  // by user
  std::uint64_t forgotten_of_all_ = 0;
  std::function<void()> wake_;
  bool woken_ = false;
};

// Deliveries of one moment. Each is made once for all watchers who get the same.
class SharedDeliveries {
 public:
  explicit SharedDeliveries(const ChangeFeed& feed) : feed_(feed) {}
  [[nodiscard]] const ChangeFeed::Delivery& since(std::uint64_t position, const Caller& caller);

 private:
  const ChangeFeed& feed_;
  // Admins see everything, so all admins share.
  std::map<std::tuple<std::uint64_t, bool, std::string>, ChangeFeed::Delivery> made_;
};

}  // namespace rubato::http
