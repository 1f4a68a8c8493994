#include "rubato/client/metrics_json.h"

#include <gtest/gtest.h>

namespace rubato::client {
namespace {

TEST(MetricsJson, HasNameLabelsAndValueOfEachSample) {
  EXPECT_EQ(
      metrics_json("# HELP a b\na 1\nb{x=\"y\\\"z\",n=\"1\"} 2.5\nc{le=\"+Inf\"} NaN\n\n").dump(),
      R"({"metrics":[{"name":"a","labels":{},"value":1.0},)"
      R"({"name":"b","labels":{"x":"y\"z","n":"1"},"value":2.5},)"
      R"({"name":"c","labels":{"le":"+Inf"},"value":null}]})");
}

}  // namespace
}  // namespace rubato::client
