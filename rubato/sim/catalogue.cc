#include "rubato/sim/catalogue.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cctype>
#include <cstddef>
#include <string>
#include <vector>

#include "rubato/base/check.h"
#include "rubato/base/text.h"

namespace rubato::sim {
namespace {

// name, steps/s, serial, exchange, latency, largest, network, GPU-hours. How they
// differ: models with much computation per parameter (gpt2, vit) scale far. Models with many
// parameters and little computation (vgg16, lstm-lm) are limited by the exchange. The recommender
// hardly scales at all.
constexpr auto kProfiles = std::to_array<Profile>({
    {"resnet50", 3.6, 0.004, 0.030, 0.00040, 64, 0.35, 40},
    {"small-convnet", 12.0, 0.050, 0.120, 0.00400, 32, 0.50, 1.2},
    {"vgg16", 2.1, 0.004, 0.160, 0.00060, 64, 0.90, 30},
    {"bert-base", 1.6, 0.003, 0.070, 0.00030, 128, 0.50, 24},
    {"gpt2", 0.9, 0.002, 0.045, 0.00015, 128, 0.45, 90},
    {"vit", 1.1, 0.002, 0.030, 0.00020, 128, 0.30, 60},
    {"translation", 6.0, 0.015, 0.090, 0.00080, 64, 0.60, 6},
    {"lstm-lm", 9.0, 0.100, 0.180, 0.00400, 32, 0.80, 4},
    {"recommender", 45.0, 0.350, 0.450, 0.01000, 16, 1.00, 0.8},
    {"speech", 1.2, 0.012, 0.050, 0.00060, 64, 0.40, 16},
    {"detector", 0.8, 0.010, 0.035, 0.00050, 64, 0.35, 20},
    {"gan", 1.9, 0.030, 0.060, 0.00150, 32, 0.50, 8},
    {"rl-agent", 25.0, 0.200, 0.050, 0.00600, 16, 0.30, 3},
});

// Text in a model's name, in lower case without punctuation. The first match decides.
struct Alias {
  std::string_view text;
  std::string_view profile;
  bool word = false;  // too short to search for inside other words
};
constexpr auto kAliases = std::to_array<Alias>({
    {"cifar", "small-convnet"},
    {"mnist", "small-convnet"},
    {"smallconvnet", "small-convnet"},
    {"lenet", "small-convnet"},
    {"resnet18", "small-convnet"},
    {"resnet20", "small-convnet"},
    {"yolo", "detector"},
    {"rcnn", "detector"},
    {"detect", "detector"},
    {"ssd", "detector", true},
    {"retinanet", "detector"},
    {"resnet", "resnet50"},
    {"imagenet", "resnet50"},
    {"inception", "resnet50"},
    {"googlenet", "resnet50"},
    {"densenet", "resnet50"},
    {"mobilenet", "resnet50"},
    {"vgg", "vgg16"},
    {"alexnet", "vgg16"},
    {"bert", "bert-base"},
    {"gpt", "gpt2"},
    {"llama", "gpt2"},
    {"vit", "vit", true},
    {"visiontransformer", "vit"},
    {"deit", "vit", true},
    {"swin", "vit"},
    {"transformer", "translation"},
    {"translation", "translation"},
    {"seq2seq", "translation"},
    {"nmt", "translation"},
    {"lm", "lstm-lm", true},
    {"lstm", "lstm-lm"},
    {"rnn", "lstm-lm"},
    {"languagemodel", "lstm-lm"},
    {"recommend", "recommender"},
    {"ncf", "recommender", true},
    {"dlrm", "recommender"},
    {"speech", "speech"},
    {"wav2vec", "speech"},
    {"cyclegan", "gan"},
    {"dcgan", "gan"},
    {"stylegan", "gan"},
    {"pix2pix", "gan"},
    {"gan", "gan", true},
    {"rlagent", "rl-agent"},
    {"a3c", "rl-agent", true},
    {"ppo", "rl-agent", true},
    {"dqn", "rl-agent", true},
});

bool has_word(std::string_view text, std::string_view word) {
  const auto letter = [&](std::size_t i) {
    return i < text.size() && std::isalnum(static_cast<unsigned char>(text[i])) != 0;
  };
  for (auto at = text.find(word); at != std::string_view::npos; at = text.find(word, at + 1)) {
    if ((at == 0 || !letter(at - 1)) && !letter(at + word.size())) return true;
  }
  return false;
}

const Profile& profile_named(std::string_view name) {
  const auto at = std::find_if(kProfiles.begin(), kProfiles.end(),
                               [&](const Profile& profile) { return profile.name == name; });
  CHECK(at != kProfiles.end());
  return *at;
}

}  // namespace

double Profile::speedup(int gpus) const {
  const double k = gpus;
  const double step = serial + (1 - serial) / k + exchange * (k - 1) / k + latency * (k - 1);
  return 1 / step;
}

std::span<const Profile> catalogue() { return kProfiles; }

const Profile* find_profile(std::string_view model) {
  std::string spelled(model);
  for (char& c : spelled) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  std::string joined;
  for (const char c : spelled) {
    if (std::isalnum(static_cast<unsigned char>(c)) != 0) joined += c;
  }
  for (const auto& alias : kAliases) {
    const bool fits =
        alias.word ? has_word(spelled, alias.text) : joined.find(alias.text) != std::string::npos;
    if (fits) return &profile_named(alias.profile);
  }
  return nullptr;
}

std::optional<double> power_exponent(std::string_view model) {
  constexpr std::string_view kPrefix = "power:";
  if (model.substr(0, kPrefix.size()) != kPrefix) return std::nullopt;
  const auto q = parse_double(model.substr(kPrefix.size()));
  return q && *q > 0 && *q <= 1 ? q : std::nullopt;
}

const Profile& draw_profile(Random random) { return kProfiles[random.below(kProfiles.size())]; }

std::shared_ptr<const CurveSpeed> CatalogueCurves::curve(const Profile& profile, int gpus) {
  CHECK(gpus >= 1 && gpus <= kMostGpus);
  const int reach =
      std::max(profile.largest, static_cast<int>(std::bit_ceil(static_cast<unsigned>(gpus))));
  auto& made = made_[{profile.name, reach}];
  if (!made) {
    std::vector<CurvePoint> points;
    for (int k = 1; k <= reach; k *= 2) points.push_back({k, profile.rate(k)});
    made = std::make_shared<CurveSpeed>(points, profile.network);
  }
  return made;
}

}  // namespace rubato::sim
