#include "rubato/sim/curves.h"

#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <string>
#include <unistd.h>
#include <vector>

namespace rubato::sim {
namespace {

std::vector<int> counts(const CurveSpeed& curve) {
  return {curve.measured().begin(), curve.measured().end()};
}

TEST(Curves, LeavesOutCountsThatCannotRun) {
  const auto curves = parse_curves(
      "global_batch_size,1,2,4,8\r\n64,2,3.5,nan,\r\n128,0,1.5,2.5,2\r\n256,,0,nan,0\r\n", "m.csv");
  ASSERT_TRUE(curves.ok()) << curves.error().message;
  ASSERT_EQ(curves->size(), 2U);  // nothing of batch 256 is left
  EXPECT_EQ(counts(*curves->at(64)), (std::vector{1, 2}));
  EXPECT_EQ(counts(*curves->at(128)), (std::vector{2, 4, 8}));
  EXPECT_EQ(curves->at(128)->on(GpuType(), 4), 2.5);
  EXPECT_EQ(curves->at(128)->on(GpuType(), 8), 2);
}

TEST(Curves, RefusesBadFilesWithFileAndLine) {
  struct Case {
    std::string text, message;
  };
  const std::vector<Case> cases = {
      {"", "m.csv: no curves: the file is empty"},
      {"global_batch_size,1,2\n", "m.csv: no curves: only a header"},
      {"model,1,2\n", "m.csv:1: a curve file begins with global_batch_size,1,2,4,..."},
      {"global_batch_size\n", "m.csv:1: a curve file begins with global_batch_size,1,2,4,..."},
      {"global_batch_size,1,x\n",
       "m.csv:1: column \"x\" is not a GPU count from 1 to 4096 above the one before it"},
      {"global_batch_size,2,1\n",
       "m.csv:1: column \"1\" is not a GPU count from 1 to 4096 above the one before it"},
      {"global_batch_size,1\n64,fast\n", "m.csv:2: \"fast\" is not a number"},
      {"global_batch_size,1\n64,-2\n", "m.csv:2: \"-2\" steps per second make no sense"},
      {"global_batch_size,1\n64,inf\n", "m.csv:2: \"inf\" steps per second make no sense"},
      {"global_batch_size,1\n0,2\n",
       "m.csv:2: batch size \"0\" is not a whole number from 1 to 1000000000"},
      {"global_batch_size,1\n64,2\n64,3\n", "m.csv:3: batch size 64 was given on line 2"},
      {"global_batch_size,1,2\n64,2\n", "m.csv:2: 2 fields where the header has 3"},
  };
  for (const auto& each : cases) {
    const auto curves = parse_curves(each.text, "m.csv");
    EXPECT_EQ(curves.ok() ? "accepted" : curves.error().message, each.message) << each.text;
  }
}

TEST(Curves, ReadsADirectory) {
  const std::string folder = testing::TempDir() + "rubato_curves_" + std::to_string(getpid());
  EXPECT_EQ(read_curves(folder).error().message,
            folder + ": cannot be opened as a directory of curves: No such file or directory");
  std::filesystem::create_directories(folder);
  EXPECT_EQ(read_curves(folder).error().message,
            folder + ": has no .csv file; curves are one MODEL.csv per model");
  std::ofstream(folder + "/net.csv") << "global_batch_size,1,2\n64,1,1.8\n";
  std::ofstream(folder + "/README.md") << "not a curve";
  const auto book = read_curves(folder);
  ASSERT_TRUE(book.ok()) << book.error().message;
  EXPECT_NE(book->find("net", 64), nullptr);
  EXPECT_EQ(book->find("net", 32), nullptr);
  EXPECT_EQ(book->find("README", 64), nullptr);
  std::ofstream(folder + "/bad.csv") << "global_batch_size,1\n64,?\n";
  EXPECT_EQ(read_curves(folder).error().message, folder + "/bad.csv:2: \"?\" is not a number");
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace rubato::sim
