// GPUs of one type go to those to whom they are worth most.
//
// Each bidder has a concave curve: what so many GPUs are worth to it. The GPUs go out in steps of
// these curves, the steepest first; the first step that no longer fits is the price of a GPU. With
// concave curves that is the best division, but for the last step. It may still get its GPUs: from
// the last ones before it, if all is worth more then. What is left goes to whoever can use a
// smaller step, in the same order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

namespace rubato::policy {

class Auction {
 public:
  struct Point {
    int gpus = 0;
    double worth = 0;
  };

  void clear() { steps_.clear(); }
  // The points by GPUs, the first being what the bidder has without the auction (mostly 0 GPUs).
  // Points below the smallest concave curve above them all are passed over.
  void bid(std::uint32_t bidder, const std::vector<Point>& points);

  // Gives out `gpus`; won[bidder] is raised from its first point's GPUs. `smaller` may offer a
  // bidder with `has` GPUs, whose step to `wanted` does not fit, a count in between: at most
  // has + room; `has` if there is none.
  using Smaller = std::function<int(std::uint32_t bidder, int has, int wanted, int room)>;
  // Answers the price: 0 if all that is wanted is there.
  double give_out(int gpus, std::vector<int>& won, const Smaller& smaller);

 private:
  struct Step {
    double slope = 0;
    std::uint32_t bidder = 0;
    int from = 0, to = 0;
    [[nodiscard]] int gpus() const { return to - from; }
  };
  // A step that was given, or a part of it.
  struct Given {
    std::size_t step = 0;
    int to = 0;
  };

  const Step& step(std::size_t at);
  void give(std::size_t at, int to, int& gpus, std::vector<int>& won);
  void take_back(std::size_t kept, int& gpus, std::vector<int>& won);
  double give_what_fits(std::size_t from, std::size_t to, int& gpus, std::vector<int>& won);
  bool make_room(std::size_t at, int& gpus, std::vector<int>& won);

  std::vector<Step> steps_;  // the first so many by slope
  std::size_t sorted_ = 0;
  std::vector<Given> given_;
  std::vector<Point> curve_;
};

}  // namespace rubato::policy
