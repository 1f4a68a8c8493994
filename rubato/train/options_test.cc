#include "rubato/train/options.h"

#include <cstdlib>
#include <gtest/gtest.h>
#include <string>

namespace rubato::train {
namespace {

TEST(Options, FlagsOfTheCommandComeLast) {
  ::setenv("RUBATO_BATCH_MODE", "adaptive", 1);
  ::setenv("RUBATO_BATCH_MIN", "16", 1);
  std::string name = "train";
  std::string flag = "--batch";
  std::string value = "32";
  char* argv[] = {name.data(), flag.data(), value.data(), nullptr};  // NOLINT(*-c-arrays)
  const Options options = parse_options(3, argv, {.steps = 10, .batch = 64});
  ::unsetenv("RUBATO_BATCH_MODE");
  ::unsetenv("RUBATO_BATCH_MIN");
  EXPECT_TRUE(options.adaptive);
  EXPECT_EQ(options.batch, 32);
}

}  // namespace
}  // namespace rubato::train
