#include "rubato/launch/orders.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <vector>

namespace rubato::launch {
namespace {

template <class... Ts>
struct Overloaded : Ts... {
  using Ts::operator()...;
};
template <class... Ts>
Overloaded(Ts...) -> Overloaded<Ts...>;

}  // namespace

std::string to_text(const Order& order) {
  const auto message = Overloaded{
      [](const wire::Welcome& welcome) {
        std::vector<Uid> peers;
        for (const wire::Peer& peer : welcome.peers) peers.push_back(peer.uid);
        return fmt::format("welcome {}({}) peers ({})", welcome.founder ? "founder " : "",
                           fmt::join(welcome.plan.workers, " "), fmt::join(peers, " "));
      },
      [](const wire::MembershipPlan& plan) {
        return fmt::format("plan {} ({})", plan.number, fmt::join(plan.workers, " "));
      },
      [](const wire::Stop&) { return std::string("stop"); },
      [](const wire::Throttle& throttle) { return fmt::format("share {}", throttle.share); },
      [](const wire::RosterWord& word) {
        return fmt::format("roster of plan {} ({}), gone ({})", word.plan.number,
                           fmt::join(word.plan.workers, " "), fmt::join(word.gone, " "));
      },
      [](const wire::MasterBeat&) { return std::string("beat"); }};
  return std::visit(Overloaded{[](const StartWorker& start) {
                                 if (start.world > 0) {
                                   return fmt::format("start {} rank {}/{} round {}", start.uid,
                                                      start.rank, start.world, start.round);
                                 }
                                 return fmt::format("start {}{}{}", start.uid,
                                                    start.slot.empty() ? "" : " at ", start.slot);
                               },
                               [](const SignalWorker& signal) {
                                 return fmt::format("signal {} {}", signal.uid, signal.signal);
                               },
                               [&](const SendToWorker& send) {
                                 return fmt::format("{} to {}", std::visit(message, send.message),
                                                    send.uid);
                               },
                               [](const Tell& tell) { return "tell " + tell.text; }},
                    order);
}

}  // namespace rubato::launch
