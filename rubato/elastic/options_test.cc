#include "rubato/elastic/options.h"

#include <cstdlib>
#include <gtest/gtest.h>
#include <map>
#include <string>

namespace rubato::elastic {
namespace {

// Sets variables, and removes them in the destructor.
class Environment {
 public:
  explicit Environment(const std::map<std::string, std::string>& variables)
      : variables_(variables) {
    for (const auto& [name, value] : variables_) ::setenv(name.c_str(), value.c_str(), 1);
  }
  ~Environment() {
    for (const auto& [name, value] : variables_) ::unsetenv(name.c_str());
  }
  Environment(const Environment&) = delete;
  Environment& operator=(const Environment&) = delete;

 private:
  std::map<std::string, std::string> variables_;
};

Options program() {
  Options options;
  options.steps = 10;
  options.batch = 64;
  return options;
}

TEST(Options, WithoutAWordTheProgramsOwn) {
  const auto options = options_from_environment(program()).value();
  EXPECT_FALSE(options.adaptive);
  EXPECT_EQ(options.batch, 64);
  EXPECT_EQ(options.largest_batch, 0);
}

TEST(Options, AJobFileSaysHowTheBatchMayChange) {
  const Environment job({{"RUBATO_BATCH_MODE", "adaptive"},
                         {"RUBATO_BATCH_MIN", "16"},
                         {"RUBATO_BATCH_MAX", "512"},
                         {"RUBATO_LEARNING_RATE", "sqrt"}});
  const auto options = options_from_environment(program()).value();
  EXPECT_TRUE(options.adaptive);
  EXPECT_EQ(options.batch, 16);
  EXPECT_EQ(options.largest_batch, 512);
  EXPECT_EQ(options.learning_rate_rule, LearningRateRule::sqrt);
}

TEST(Options, TheRuleForAdamIsTheProgramsToKnow) {
  const Environment job(std::map<std::string, std::string>{{"RUBATO_LEARNING_RATE", "adascale"}});
  Options adam = program();
  adam.learning_rate_rule = LearningRateRule::adascale_adam;
  EXPECT_EQ(options_from_environment(adam).value().learning_rate_rule,
            LearningRateRule::adascale_adam);
  Options linear = program();
  linear.learning_rate_rule = LearningRateRule::linear;
  EXPECT_EQ(options_from_environment(linear).value().learning_rate_rule,
            LearningRateRule::adascale);
}

TEST(Options, NonsenseIsRefusedWithASentence) {
  const std::map<std::string, std::string> all = {{"RUBATO_BATCH_MODE", "wild"},
                                                  {"RUBATO_BATCH_MIN", "0"},
                                                  {"RUBATO_BATCH_MAX", "many"},
                                                  {"RUBATO_LEARNING_RATE", "none"}};
  for (const auto& [name, value] : all) {
    const Environment job(std::map<std::string, std::string>{{name, value}});
    const auto options = options_from_environment(program());
    ASSERT_FALSE(options) << name;
    EXPECT_NE(options.error().message.find(name), std::string::npos);
  }
}

}  // namespace
}  // namespace rubato::elastic
