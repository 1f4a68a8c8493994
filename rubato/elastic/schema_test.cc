#include "rubato/elastic/schema.h"

#include <gtest/gtest.h>

namespace rubato::elastic {
namespace {

Json model() {
  return Json::parse(R"({"optimizer": "sgd", "bucket_floats": 100,
    "parameters": [{"name": "a.weight", "shape": [2, 3], "dtype": "float32", "trained": true},
                   {"name": "a.bias", "shape": [2], "dtype": "float32", "trained": true}],
    "buffers": [{"name": "b.mean", "shape": [2], "dtype": "float32"}]})");
}

TEST(Schema, EqualModelsDoNotDiffer) {
  EXPECT_FALSE(difference(model(), model()));
  EXPECT_FALSE(difference(model(), Json::parse(model().dump())));
}

TEST(Schema, NamesTheFirstDifference) {
  Json other = model();
  other["parameters"][1]["shape"] = {3};
  other["buffers"][0]["dtype"] = "float64";
  EXPECT_EQ(difference(model(), other),
            "parameter 1 is a.bias of shape [2] and type float32 here but a.bias of shape [3] and "
            "type float32 at the other worker: both must build the same model");

  other = model();
  other["buffers"][0]["dtype"] = "float64";
  EXPECT_EQ(difference(model(), other),
            "buffer 0 is b.mean of shape [2] and type float32 here but b.mean of shape [2] and "
            "type float64 at the other worker: both must build the same model");
}

TEST(Schema, NamesWhatOneSideLacks) {
  Json other = model();
  other["parameters"].erase(1);
  EXPECT_EQ(difference(model(), other),
            "parameter 1 exists only here: a.bias of shape [2] and type float32: both must build "
            "the same model");
  EXPECT_EQ(difference(other, model()),
            "parameter 1 exists only at the other worker: a.bias of shape [2] and type float32: "
            "both must build the same model");
}

TEST(Schema, FrozenHereAndTrainedThereDiffer) {
  Json other = model();
  other["parameters"][0]["trained"] = false;
  EXPECT_NE(difference(model(), other)->find("(frozen) at the other worker"), std::string::npos);
}

TEST(Schema, OptimizersAndBucketsMustBeAlike) {
  Json other = model();
  other["optimizer"] = "adam";
  EXPECT_EQ(difference(model(), other),
            "the optimizer is sgd here but adam at the other worker: start both with the same");
  other = model();
  other["bucket_floats"] = 200;
  EXPECT_EQ(difference(model(), other),
            "the bucket size is 100 here but 200 at the other worker: start both with the same");
}

TEST(Schema, AnyJsonFromTheWireIsComparedWithoutTrust) {
  for (const char* text : {"null", "[]", "3", R"("x")", "{}", R"({"parameters": 7})",
                           R"({"parameters": [1, "two"], "buffers": null})",
                           R"({"parameters": [{"name": {"a": 1}, "shape": "round"}]})"}) {
    EXPECT_TRUE(difference(model(), Json::parse(text))) << text;
    EXPECT_TRUE(difference(Json::parse(text), model())) << text;
  }
  Json other = model();
  other["version"] = 2;
  EXPECT_NE(difference(model(), other)->find("same version"), std::string::npos);
}

}  // namespace
}  // namespace rubato::elastic
