#include "rubato/api/metrics.h"

#include <gtest/gtest.h>
#include <set>
#include <string>

#include "rubato/base/text.h"

namespace rubato::api {
namespace {

TEST(Metrics, WritesTheTextFormat) {
  MetricsWriter out;
  out.family("a_total", "counter", "Two\nlines and a \\.");
  out.sample(3, {{"name", "quo\"te\\ and\nline"}, {"b", ""}});
  out.gauge("b", "Help.", 0.1);
  EXPECT_EQ(out.text(),
            "# HELP a_total Two\\nlines and a \\\\.\n"
            "# TYPE a_total counter\n"
            "a_total{name=\"quo\\\"te\\\\ and\\nline\",b=\"\"} 3\n"
            "# HELP b Help.\n"
            "# TYPE b gauge\n"
            "b 0.1\n");
}

TEST(Metrics, WritesWhatIsNotFinite) {
  MetricsWriter out;
  out.gauge("a", "x", std::numeric_limits<double>::infinity());
  out.sample(-std::numeric_limits<double>::infinity());
  out.sample(std::numeric_limits<double>::quiet_NaN());
  EXPECT_NE(out.text().find("a +Inf\na -Inf\na NaN\n"), std::string::npos);
}

TEST(Metrics, HistogramsAreCumulative) {
  Histogram histogram({1, 2.5});
  histogram.observe(1);  // the upper end belongs to the bucket
  histogram.observe(2);
  histogram.observe(100);
  MetricsWriter out;
  out.family("h", "histogram", "x");
  out.histogram(histogram, {{"route", "r"}});
  EXPECT_EQ(out.text().substr(out.text().find("h_bucket")),
            "h_bucket{route=\"r\",le=\"1\"} 1\n"
            "h_bucket{route=\"r\",le=\"2.5\"} 2\n"
            "h_bucket{route=\"r\",le=\"+Inf\"} 3\n"
            "h_sum{route=\"r\"} 103\n"
            "h_count{route=\"r\"} 3\n");
}

TEST(Metrics, BoundsAreRound) {
  EXPECT_EQ(bucket_bounds(1e-3, 0.1), (std::vector{0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1}));
  EXPECT_EQ(bucket_bounds(2.5, 25), (std::vector{2.5, 5.0, 10.0, 25.0}));
  for (const double bound : bucket_bounds(1e-5, 1e5)) EXPECT_LT(shortest(bound).size(), 8U);
}

// Every line is a comment or NAME{LABELS} VALUE, every sample follows its family's TYPE.
TEST(Metrics, TheWholeTextIsWellFormed) {
  Metrics metrics;
  metrics.shares["ada"] = {2, 100, 1};
  metrics.least_slack_seconds = -5;
  metrics.waiting.observe(3);
  const std::string text = metrics_text(metrics, {"root", true});
  std::set<std::string> families;
  std::string family;
  std::set<std::string> samples;
  for (const auto line : split(text, '\n')) {
    if (line.substr(0, 7) == "# TYPE ") {
      family = line.substr(7, line.find(' ', 7) - 7);
      EXPECT_TRUE(families.insert(family).second) << family << " stands twice";
      EXPECT_EQ(family.substr(0, 7), "rubato_");
    } else if (!line.empty() && line[0] != '#') {
      const auto name_end = line.find_first_of("{ ");
      EXPECT_EQ(line.substr(0, family.size()), family);
      EXPECT_NE(name_end, std::string_view::npos);
      EXPECT_TRUE(samples.insert(std::string(line.substr(0, line.rfind(' ')))).second) << line;
      EXPECT_TRUE(parse_double(line.substr(line.rfind(' ') + 1))) << line;
    }
  }
  EXPECT_GE(families.size(), 20U);
}

TEST(Metrics, NamesNoOtherUser) {
  Metrics metrics;
  metrics.shares["ada"] = {2, 100, 1};
  metrics.shares["bo"] = {1, 50, 1};
  const std::string own = metrics_text(metrics, {"ada", false});
  EXPECT_NE(own.find("user=\"ada\""), std::string::npos);
  EXPECT_EQ(own.find("bo"), std::string::npos);
  const std::string all = metrics_text(metrics, {"root", true});
  EXPECT_NE(all.find("rubato_user_gpu_seconds_total{user=\"bo\"} 50"), std::string::npos);
}

}  // namespace
}  // namespace rubato::api
