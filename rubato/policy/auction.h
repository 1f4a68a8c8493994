// GPUs of one type go to those to whom they are worth most.
//
// Each bidder has a concave curve: what so many GPUs are worth to it. The GPUs go out in steps of
// these curves, the steepest first; the first step that no longer fits is the price of a GPU. With
// concave curves that is the best division, but for the last step. What is left then goes to
// whoever can use a smaller step, in the same order.
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
  };

  std::vector<Step> steps_;
  std::vector<Point> curve_;
};

}  // namespace rubato::policy
