// What has changed, for those who watch: the loop publishes, the HTTP server delivers.
//
// Watchers want to know how things are, not each step on the way. So the feed keeps the newest
// change of each thing, of the things that changed last, and a watcher is a position in their
// order: what it costs does not grow with what happens, and all watchers at one position of one
// user share the same bytes. Whoever is so far behind that changes of theirs have been forgotten,
// or would be sent too much at once, is told to read the lists anew ("resync") and goes on from the
// end.
//
// The id of an event is "EPOCH-NUMBER". Numbers begin anew with each daemon, and so does the epoch:
// an id of an earlier daemon is too old, whatever its number.
//
// One user never gets another's changes. The numbers count everybody's, so from a gap a user learns
// that others are busy, as from the queue.
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
  std::string user;      // whose it is; empty = everybody's
  std::string event;     // "job", "node", "policy"
  std::uint32_t id = 0;  // of the job or the node: a newer change of it replaces an older one
  Json body;
};

// Thread-safe.
class ChangeFeed {
 public:
  struct Options {
    std::string epoch = "0";    // differs from that of every earlier daemon; letters and digits
    std::size_t things = 4096;  // whose newest change is kept
    std::size_t at_once = 64;   // events in one delivery, beyond which it is a resync
  };
  struct Delivery {
    std::uint64_t position = 0;                // after it
    std::shared_ptr<const std::string> bytes;  // nullptr: nothing for this caller
    bool resync = false;
    std::size_t events = 0;
  };

  ChangeFeed() : ChangeFeed(Options{}) {}
  explicit ChangeFeed(Options options) : options_(std::move(options)) {}

  void publish(News change);

  // Called by publish(), once after each deliveries_begin(): the server need not be woken for each
  // change. Set it while nobody publishes.
  void on_change(std::function<void()> wake);
  void deliveries_begin();

  [[nodiscard]] std::uint64_t newest() const;
  // Where the caller goes on who has seen the event of this id; nullopt: it is too old.
  [[nodiscard]] std::optional<std::uint64_t> position_of(std::string_view id,
                                                         const Caller& caller) const;
  [[nodiscard]] std::string id_of(std::uint64_t position) const;

  // What the caller has to be told after `position`.
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
  // The last change that was forgotten of those that the caller may see.
  [[nodiscard]] std::uint64_t forgotten(const Caller& caller) const;
  // In order; nullopt: too many, or too old.
  [[nodiscard]] std::optional<Changes> collect(std::uint64_t position, const Caller& caller,
                                               std::uint64_t& newest) const;

  const Options options_;
  mutable std::mutex mutex_;
  std::uint64_t newest_ = 0;
  std::map<std::uint64_t, std::shared_ptr<const Numbered>> changes_;  // one of each thing
  std::map<Thing, std::uint64_t> number_of_;
  std::map<std::string, std::uint64_t> forgotten_;  // by user
  std::uint64_t forgotten_of_all_ = 0;
  std::function<void()> wake_;
  bool woken_ = false;
};

// Deliveries of one moment: made once for all watchers who are to be told the same.
class SharedDeliveries {
 public:
  explicit SharedDeliveries(const ChangeFeed& feed) : feed_(feed) {}
  [[nodiscard]] const ChangeFeed::Delivery& since(std::uint64_t position, const Caller& caller);

 private:
  const ChangeFeed& feed_;
  // Admins see everything, whoever they are.
  std::map<std::tuple<std::uint64_t, bool, std::string>, ChangeFeed::Delivery> made_;
};

}  // namespace rubato::http
