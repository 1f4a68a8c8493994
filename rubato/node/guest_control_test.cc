#include "rubato/node/guest_control.h"

#include <cmath>
#include <cstdint>
#include <gtest/gtest.h>

#include "rubato/base/random.h"
#include "rubato/base/testing_seeds.h"

namespace rubato::node {
namespace {

// A host and a guest on the same GPU, in steps of 50 ms. Beside an unlimited guest the host keeps a
// part of its speed; beside a limited one it loses that share of the loss.
class Pair {
 public:
  Pair(double step_seconds, double kept, std::uint64_t seed = 1, double noise = 0)
      : step_seconds_(step_seconds), kept_(kept), random_(seed), noise_(noise) {}

  // The share that the guest was given on average, and what the host lost.
  struct Sum {
    double share = 0;
    double lost = 0;
  };
  Sum run(double seconds) {
    Sum sum;
    double ideal = 0, made = 0, given = 0;
    const int ticks = static_cast<int>(seconds / kTick);
    for (int i = 0; i < ticks; ++i) {
      now_ += kTick;
      const double speed = stopped ? 0 : (1 - share_ * (1 - kept_)) * (share_ > 0 ? 1 - harm : 1);
      const double jitter = noise_ > 0 ? 1 + noise_ * random_.uniform(-1, 1) : 1;
      done_ += kTick / step_seconds_ * speed * jitter;
      ideal += stopped ? 0 : kTick;
      made += kTick * speed;
      given += share_ * kTick;
      guest_done_ += share_ * kTick / 0.1;
      // The host reports twice a second: the newest whole step, and when it was applied.
      if (i % 10 == 0) {
        seen_.step = first + static_cast<std::int64_t>(done_);
        if (!stopped) seen_.applied_at = now_ - (done_ - std::floor(done_)) * step_seconds_;
        seen_.guest_step = static_cast<std::int64_t>(guest_done_);
      }
      if (silent) seen_.step = 0;
      share_ = control.share(time_at(now_), seen_);
      EXPECT_GE(share_, 0);
      EXPECT_LE(share_, 1);
    }
    sum.share = given / seconds;
    sum.lost = ideal > 0 ? 1 - made / ideal : 0;
    return sum;
  }
  [[nodiscard]] double share() const { return share_; }
  void reshape() { ++seen_.form; }
  void set_kept(double kept) { kept_ = kept; }

  GuestControl control;
  double harm = 0;       // what the host loses as soon as the guest does anything
  bool stopped = false;  // the host makes no steps
  bool silent = false;   // it has not made one yet
  std::int64_t first = 1;

 private:
  static constexpr double kTick = 0.05;

  double step_seconds_, kept_;
  Random random_;
  double noise_;
  double now_ = 0, done_ = 0, guest_done_ = 0;
  double share_ = 0;
  GuestControl::Seen seen_;
};

TEST(GuestControl, TheHostNeverLosesMoreThanItMay) {
  for (const double kept : {0.0, 0.2, 0.5, 0.7, 0.8, 0.9, 0.95, 1.0}) {
    for (const double step : {0.01, 0.2, 1.0}) {
      Pair pair(step, kept);
      pair.run(60);
      EXPECT_LE(pair.run(600).lost, kHostMayLose) << kept << " " << step;
    }
  }
}

TEST(GuestControl, TheGuestGetsWhatIsLeft) {
  for (const double kept : {0.5, 0.7, 0.8, 0.9}) {
    Pair pair(0.1, kept);
    pair.run(120);
    const double share = pair.run(600).share;
    EXPECT_GE(share, 0.4 * guest_share(kept)) << kept;
    EXPECT_LE(share, guest_share(kept)) << kept;
  }
  Pair harmless(0.1, 1);
  harmless.run(120);
  EXPECT_GE(harmless.run(600).share, 0.75) << "but for the windows of the host alone";
}

TEST(GuestControl, AGuestThatCostsTooMuchAtAnyShareIsStoppedAndHardlyEverTried) {
  Pair pair(0.1, 1);
  pair.harm = 0.3;
  pair.run(300);
  const auto later = pair.run(600);
  EXPECT_LE(later.share, 0.002);
  EXPECT_LE(later.lost, 0.02);
}

TEST(GuestControl, ALoadingHostHasEverything) {
  Pair pair(0.1, 0.9);
  pair.silent = true;
  EXPECT_EQ(pair.run(100).share, 0);
  pair.silent = false;
  EXPECT_GT(pair.run(100).share, 0);
}

TEST(GuestControl, AnIdleHostLeavesEverythingUntilItsNextStep) {
  Pair pair(0.1, 0.5);
  pair.run(60);
  pair.stopped = true;
  pair.run(20);
  EXPECT_EQ(pair.share(), 1);
  EXPECT_NEAR(pair.run(30).share, 1, 1e-9);
  pair.stopped = false;
  pair.run(1);
  EXPECT_EQ(pair.share(), 0) << "the host is measured alone first";
}

TEST(GuestControl, AHostThatStandsBesideAGuestIsFirstGivenEverything) {
  Pair pair(0.1, 1);
  pair.run(120);
  ASSERT_GT(pair.share(), 0);
  pair.stopped = true;
  int alone = 0;  // passes in a row without the guest, which may be what stops it
  for (int i = 0; i < 400 && (pair.share() < 1 || alone == 0); ++i) {
    pair.run(0.05);
    if (pair.share() == 0) ++alone;
  }
  EXPECT_EQ(pair.share(), 1);
  EXPECT_GE(alone, 50) << "of 50 ms";
}

TEST(GuestControl, AHostWithOtherWorkersIsMeasuredAnew) {
  Pair pair(0.1, 0.9);
  pair.run(60);
  ASSERT_TRUE(pair.control.alone());
  EXPECT_NEAR(*pair.control.alone(), 0.1, 0.02);
  pair.reshape();
  pair.run(0.1);
  EXPECT_EQ(pair.share(), 0);
  EXPECT_FALSE(pair.control.alone());
}

TEST(GuestControl, AHostThatBeginsAgainAtItsCheckpointIsMeasuredAlone) {
  Pair pair(0.1, 1);
  pair.run(120);
  ASSERT_GT(pair.share(), 0);
  pair.first -= 500;
  pair.run(0.6);
  EXPECT_EQ(pair.share(), 0);
  pair.run(60);
  EXPECT_GT(pair.run(60).share, 0.5) << "although the steps are those of long ago";
}

TEST(GuestControl, AHostThatNeedsMoreThanBeforeGetsItBack) {
  Pair pair(0.1, 0.97);
  pair.run(300);
  ASSERT_GT(pair.run(60).share, 0.5);
  pair.set_kept(0.2);
  pair.run(30);
  EXPECT_LE(pair.run(300).lost, kHostMayLose);
}

TEST(GuestControl, NoiseDoesNotLetTheHostLoseMore) {
  for (std::uint64_t seed = 0; seed < seeds(200); ++seed) {
    Random random(seed);
    const double kept = random.uniform(0, 1);
    Pair pair(random.uniform(0.01, 0.5), kept, seed, 0.3);
    pair.run(60);
    EXPECT_LE(pair.run(600).lost, kHostMayLose + 0.01) << "seed " << seed << ", kept " << kept;
  }
}

TEST(GuestControl, TheSameStepsGiveTheSameShares) {
  Pair first(0.1, 0.7, 5, 0.2), second(0.1, 0.7, 5, 0.2);
  for (int i = 0; i < 200; ++i) {
    first.run(0.5);
    second.run(0.5);
    ASSERT_EQ(first.share(), second.share());
  }
}

}  // namespace
}  // namespace rubato::node
