// What a worker of a job that spans hosts has heard from its masters. Pure.
//
//   * It obeys the latest master that it has heard of, and no earlier one.
//   * If it finds itself among those that are gone, or its round is over, it ends before it does
//     anything else with what it heard. A worker that first acted on the rest of the list could
//     commit a record of its own, though the others have gone on without it.
//   * It knows of deaths only from this list. It never counts a member as dead that it cannot reach
//     or does not know.
//   * It starts the job (founds) at most once.
#pragma once

#include <cstdint>
#include <vector>

#include "rubato/member/membership.h"
#include "rubato/wire/roster_messages.h"

namespace rubato::member {

class Standing {
 public:
  enum class Verdict : std::uint8_t {
    refused,  // of an earlier master
    heard,    // give gone() and the plan to the Membership
    ends,     // this worker must end now
  };

  Standing(Uid self, std::int64_t round) : self_(self), round_(round) {}

  [[nodiscard]] Verdict hear(const wire::RosterWord& word);
  // True once, if the master has made this worker the founder.
  [[nodiscard]] bool may_found();

  [[nodiscard]] std::int64_t round() const { return round_; }
  [[nodiscard]] std::int64_t epoch() const { return epoch_; }
  [[nodiscard]] const std::vector<Uid>& gone() const { return gone_; }
  [[nodiscard]] bool is_gone(Uid uid) const;
  // Whether to listen to a peer at all.
  [[nodiscard]] bool accepts(std::int64_t round, Uid peer) const {
    return round == round_ && !is_gone(peer);
  }
  // What to say to the master on this connection; again whenever it changes.
  [[nodiscard]] wire::WorkerHello hello(const Membership& membership,
                                        std::int64_t connection) const;

 private:
  Uid self_;
  std::int64_t round_;
  std::int64_t epoch_ = 0;
  std::vector<Uid> gone_;
  bool founder_ = false;
  bool founded_ = false;
};

}  // namespace rubato::member
