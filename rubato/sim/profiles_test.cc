#include "rubato/sim/profiles.h"

#include <filesystem>
#include <gtest/gtest.h>
#include <limits>
#include <string>
#include <vector>

#include "rubato/base/testing.h"
#include "rubato/core/testing.h"
#include "rubato/model/goodput.h"
#include "rubato/sim/testing_profiles.h"

namespace rubato::sim {
namespace {

TEST(Profiles, AMeasuredPlacementIsUsedAsItIs) {
  const auto app = small_application();
  EXPECT_DOUBLE_EQ(app->step_seconds(gpus_on({{0, 0b1}}), 10).step, 0.2);
  EXPECT_DOUBLE_EQ(app->step_seconds(gpus_on({{3, 0b1}}), 15).step, 0.3) << "between 10 and 20";
  EXPECT_DOUBLE_EQ(app->step_seconds(gpus_on({{3, 0b1}}), 5).step, 0.2) << "below the smallest";
  EXPECT_DOUBLE_EQ(app->step_seconds(gpus_on({{3, 0b1}}), 30).step, 0.6) << "beyond the largest";
  const auto turned = app->step_seconds(gpus_on({{0, 0b11}, {5, 0b1}}), 10);
  EXPECT_DOUBLE_EQ(turned.step, 0.5) << "21 is 12 the other way round";
  EXPECT_DOUBLE_EQ(turned.sync, 0.3);
}

TEST(Profiles, AFasterTypeComputesFasterAndSynchronisesAsMeasured) {
  auto texts = small_application_texts();
  texts.type_speeds = {1, 2};
  const auto app = Application::parse(texts).value();
  Allocation fast(GpuType(1));
  fast.add(Slice{NodeId(0), 0b11});
  EXPECT_DOUBLE_EQ(app->step_seconds(gpus_on({{0, 0b11}}), 10).step, 0.3);
  EXPECT_DOUBLE_EQ(app->step_seconds(fast, 10).step, 0.2 / 2 + 0.1);
  EXPECT_DOUBLE_EQ(app->step_seconds(fast, 10).sync, 0.1);
  EXPECT_EQ(app->speed_of(GpuType(2)), 1) << "types that are not named are as measured";
  const ApplicationSpeed speed(app, 10);
  EXPECT_DOUBLE_EQ(speed.rate({GpuType(1), 1, 1, 1}), 2 * speed.rate({GpuType(0), 1, 1, 1}));
}

TEST(Profiles, SpeedsOfTypesAreReadByName) {
  const auto cluster = cluster_of("1x4:slow,2x4:fast");
  EXPECT_EQ(parse_type_speeds("fast=2", cluster).value(), (std::vector<double>{1, 2}));
  EXPECT_EQ(parse_type_speeds("fast=2, slow=0.5", cluster).value(), (std::vector<double>{0.5, 2}));
  for (const char* wrong : {"", "fast", "quick=2", "fast=0", "fast=nan", "fast=1e9", "fast=-1",
                            "fast=2,fast=3", "fast=2,", "=2"}) {
    const auto speeds = parse_type_speeds(wrong, cluster);
    EXPECT_FALSE(speeds.ok()) << wrong;
  }
}

TEST(Profiles, OthersAreInterpolatedByNodesAndGpus) {
  const auto app = small_application();
  EXPECT_DOUBLE_EQ(app->step_seconds(4, 4, 10).step, 1.0) << "in scalability.csv";
  EXPECT_DOUBLE_EQ(app->step_seconds(4, 6, 10).step, 1.1) << "between 4 and 8 GPUs";
  // 3 nodes with 6 GPUs: between 2 nodes with 4 (as 12, the most there) and 4 nodes with 8.
  EXPECT_DOUBLE_EQ(app->step_seconds(3, 6, 10).step, (0.5 + 1.2) / 2);
  EXPECT_DOUBLE_EQ(app->step_seconds(40, 160, 10).step, 1.2) << "beyond all that was measured";
}

TEST(Profiles, LimitsComeFromTheFiles) {
  const auto app = small_application();
  EXPECT_EQ(app->limits().initial, 10);
  EXPECT_EQ(app->limits().largest, 40);
  EXPECT_EQ(app->limits().per_gpu_min, 10);
  EXPECT_EQ(app->limits().per_gpu_max, 20);
  EXPECT_EQ(app->most_gpus(), 4);
  EXPECT_TRUE(app->adaptive());
  EXPECT_EQ(app->epochs(), 2);
}

TEST(Profiles, AnEpochEndsWhereTheFirstBatchSizeHasEndedIt) {
  const auto app = small_application();
  EXPECT_EQ(app->progress_after(0), 90);
  EXPECT_EQ(app->progress_after(1), 200);
  EXPECT_EQ(app->work(), 200);
}

TEST(Profiles, GradientsAreInterpolatedByBatch) {
  const auto app = small_application();
  EXPECT_DOUBLE_EQ(app->noise(10, 0).var, 1);
  EXPECT_DOUBLE_EQ(app->noise(25, 0).var, 2);
  EXPECT_DOUBLE_EQ(app->noise(40, 1).sqr, 2);
  EXPECT_DOUBLE_EQ(app->noise(400, 1).sqr, 2);
}

TEST(Profiles, ProgressIsStepsTimesWhatTheyAreWorth) {
  const auto app = small_application();
  const StepSeconds seconds{0.5, 0.3};
  EXPECT_DOUBLE_EQ(app->rate(seconds, 1, {10, 0}, 0), 2) << "at the initial batch a step is a step";
  // 40 samples: sqr 1, var 3: a step is worth (3+1)/(3/4+1).
  EXPECT_DOUBLE_EQ(app->rate(seconds, 2, {10, 1}, 0), 4 / 1.75 / 0.7);
}

TEST(Profiles, AnOracleKnowsTheStepsOfEveryEpochAhead) {
  const ApplicationSpeed speed(small_application(), 25);
  // A step at batch 25 is worth 3/1.8 in the first epoch of 90 and 5/2.9 in the second of 110; on
  // two GPUs of a node, 13 samples each, it takes .36 s.
  const Shape packed{GpuType(), 2, 0, 0};
  EXPECT_NEAR(speed.seconds_left(packed, 200), (54 + 63.8) * 0.36, 1e-9);
  EXPECT_NEAR(speed.seconds_left(packed, 155), (27 + 63.8) * 0.36, 1e-9);
  EXPECT_NEAR(speed.seconds_left(packed, 55), 31.9 * 0.36, 1e-9);
  EXPECT_EQ(speed.seconds_left(packed, 0), 0);
  EXPECT_NEAR(speed.seconds_left({GpuType(), 2, 2, 1}, 110), 63.8 * 0.46, 1e-9) << "on two nodes";
  EXPECT_EQ(speed.seconds_left({GpuType(), 3, 0, 0}, 110), std::numeric_limits<double>::infinity())
      << "9 samples a GPU are too few";
  // The rate is that of the 26 samples it really trains with: sqr 23/15, var 11/3.
  EXPECT_NEAR(speed.rate(packed), 5.2 / (11.0 / 3 / 2.6 + 23.0 / 15) / 0.36, 1e-9);
}

TEST(Profiles, EveryErrorIsOneSentence) {
  const auto refused = [](const char* what, auto change) {
    ApplicationTexts texts = small_application_texts();
    change(texts);
    const auto made = Application::parse(texts);
    ASSERT_FALSE(made.ok()) << what;
    EXPECT_NE(made.error().message.find(what), std::string::npos) << made.error().message;
  };
  refused("placements.csv: the file is empty",
          [](ApplicationTexts& t) { t.placements.text.clear(); });
  refused("no column \"sync_time\"", [](ApplicationTexts& t) {
    t.placements.text = "placement,local_bsz,step_time\n1,10,1\n";
  });
  refused("placements.csv:2: a node of a placement has no GPU", [](ApplicationTexts& t) {
    t.placements.text = "placement,local_bsz,step_time,sync_time\n101,10,1,0\n";
  });
  refused("no step takes that long", [](ApplicationTexts& t) {
    t.placements.text = "placement,local_bsz,step_time,sync_time\n1,10,1,2\n";
  });
  refused("no step times", [](ApplicationTexts& t) {
    t.placements.text = "placement,local_bsz,step_time,sync_time\n";
  });
  refused("no validation-BATCH.csv", [](ApplicationTexts& t) { t.validation.clear(); });
  refused("progress must rise", [](ApplicationTexts& t) {
    t.validation[10].text = "progress,grad_sqr,grad_var\n5,1,1\n5,1,1\n";
  });
  refused("must be a number of 0 or more", [](ApplicationTexts& t) {
    t.validation[10].text = "progress,grad_sqr,grad_var\n5,nan,1\n";
  });
  EXPECT_NE(read_profiles("no/such/folder").error().message.find("no/such/folder"),
            std::string::npos);
}

TEST(Profiles, ThePublishedOnes) {
  const std::string folder = shared_data() + "/pollux/profiles";
  if (!std::filesystem::is_directory(folder)) GTEST_SKIP() << "not here: " << folder;
  const auto book = read_profiles(folder);
  ASSERT_TRUE(book.ok()) << book.error().message;
  ASSERT_EQ(book->applications.size(), 6U);
  const auto cifar = book->find("cifar10");
  EXPECT_EQ(cifar->limits().initial, 128);
  EXPECT_EQ(cifar->limits().largest, 4096);
  EXPECT_EQ(cifar->limits().per_gpu_min, 32);
  EXPECT_EQ(cifar->limits().per_gpu_max, 1024);
  EXPECT_EQ(cifar->epochs(), 100);
  EXPECT_EQ(cifar->most_gpus(), 64);
  EXPECT_EQ(cifar->packed_step_seconds(6, 128).step,
            cifar->step_seconds(gpus_on({{0, 0b1111}, {1, 0b11}}), 128).step);
  EXPECT_EQ(book->find("yolov3")->limits().per_gpu_max, 8);
  EXPECT_EQ(book->find("ncf")->most_gpus(), 1);
  EXPECT_FALSE(book->find("ncf")->adaptive());
  EXPECT_EQ(book->find("gpt"), nullptr);
  // Every shape a 16x4 cluster can give has a time.
  for (const auto& [name, app] : book->applications) {
    for (int nodes = 1; nodes <= 16; ++nodes) {
      for (int gpus = nodes; gpus <= 4 * nodes; ++gpus) {
        const auto seconds = app->step_seconds(nodes, gpus, app->limits().per_gpu_min);
        EXPECT_GT(seconds.grad(), 0) << name << " " << nodes << " " << gpus;
      }
    }
  }
}

}  // namespace
}  // namespace rubato::sim
