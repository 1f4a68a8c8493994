#include "rubato/sim/catalogue.h"

#include <gtest/gtest.h>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

namespace rubato::sim {
namespace {

TEST(Catalogue, ProfilesMakeSense) {
  std::set<std::string_view> names;
  for (const auto& profile : catalogue()) {
    SCOPED_TRACE(profile.name);
    EXPECT_TRUE(names.insert(profile.name).second);
    EXPECT_EQ(find_profile(profile.name), &profile);  // generated traces name profiles
    EXPECT_DOUBLE_EQ(profile.speedup(1), 1);
    for (int k = 2; k <= CatalogueCurves::kMostGpus; k *= 2) {
      EXPECT_GT(profile.speedup(k), 0);
      EXPECT_LT(profile.speedup(k), k);  // no job scales better than perfectly
    }
    EXPECT_GT(profile.speedup(2), 1.05);
    EXPECT_GT(profile.gpu_hours, 0);
  }
}

TEST(Catalogue, KnowsModelsAsTracesSpellThem) {
  const std::vector<std::pair<std::string_view, std::string_view>> cases = {
      {"ResNet-50", "resnet50"},
      {"resnet50", "resnet50"},
      {"resnet50_cifar10", "small-convnet"},
      {"ResNet-18", "small-convnet"},
      {"cifar10", "small-convnet"},
      {"imagenet", "resnet50"},
      {"inception3", "resnet50"},
      {"vgg19", "vgg16"},
      {"bert", "bert-base"},
      {"gpt2", "gpt2"},
      {"ncf", "recommender"},
      {"Recommendation", "recommender"},
      {"yolov3", "detector"},
      {"deepspeech2", "speech"},
      {"Transformer", "translation"},
      {"Vision Transformer", "vit"},
      {"LM", "lstm-lm"},
      {"A3C", "rl-agent"},
      {"CycleGAN", "gan"},
      {"alexnet", "vgg16"},
  };
  for (const auto& [model, name] : cases) {
    const Profile* profile = find_profile(model);
    ASSERT_NE(profile, nullptr) << model;
    EXPECT_EQ(profile->name, name) << model;
  }
  for (const auto* unknown : {"", "helm", "film", "elegant", "x"}) {
    EXPECT_EQ(find_profile(unknown), nullptr) << unknown;
  }
}

TEST(Catalogue, CurvesAreSharedAndReachFarEnough) {
  CatalogueCurves curves;
  const Profile& profile = catalogue().front();  // reaches 64
  const auto curve = curves.curve(profile, 1);
  EXPECT_EQ(curve->measured().front(), 1);
  EXPECT_EQ(curve->measured().back(), 64);
  EXPECT_EQ(curves.curve(profile, 64), curve);
  const auto extended = curves.curve(profile, 65);
  EXPECT_EQ(extended->measured().back(), 128);
  EXPECT_EQ(curves.curve(profile, 128), extended);
  EXPECT_EQ(extended->on(GpuType(), 128), profile.rate(128));
  EXPECT_EQ(curves.curve(profile, CatalogueCurves::kMostGpus)->measured().back(), 4096);
}

TEST(Catalogue, DrawsEveryProfile) {
  std::set<std::string_view> drawn;
  const Random root(7);
  for (std::uint64_t i = 0; i < 500; ++i) drawn.insert(draw_profile(root.split(i)).name);
  EXPECT_EQ(drawn.size(), catalogue().size());
}

}  // namespace
}  // namespace rubato::sim
