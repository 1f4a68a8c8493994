#include "rubato/sim/batch_schedule.h"

#include <algorithm>
#include <array>
#include <cmath>

namespace rubato::sim {
namespace {

struct Network {
  std::string_view name;
  int samples;  // of its data set
  int largest;  // batch
};
constexpr auto kNetworks = std::to_array<Network>({
    {"ResNet-18", 50'000, 256},
    {"ResNet-50", 100'000, 128},
    {"LM", 59'675, 80},
    {"Recommendation", 117'907, 8192},
});

// The batch doubles at each of these epochs.
struct Doublings {
  std::string_view network;
  int batch;
  int gpus;
  std::array<int, 4> epochs;  // 0: no more
};
constexpr auto kDoublings = std::to_array<Doublings>({
    {"ResNet-18", 16, 1, {31, 41, 51, 71}},
    {"ResNet-18", 32, 1, {21, 31, 51}},
    {"ResNet-18", 64, 1, {11, 31}},
    {"ResNet-18", 128, 1, {11}},
    {"ResNet-18", 16, 2, {21, 31, 91, 111}},
    {"ResNet-18", 32, 2, {11, 21, 41}},
    {"ResNet-18", 64, 2, {21, 41}},
    {"ResNet-18", 128, 2, {41}},
    {"ResNet-18", 16, 4, {11, 21, 81, 91}},
    {"ResNet-18", 32, 4, {21, 31, 61}},
    {"ResNet-18", 64, 4, {11, 61}},
    {"ResNet-18", 128, 4, {11}},
    {"ResNet-50", 64, 1, {101}},
    {"ResNet-50", 32, 2, {101, 111}},
    {"ResNet-50", 64, 2, {81}},
    {"ResNet-50", 32, 4, {131, 221}},
    {"ResNet-50", 64, 4, {191}},
    {"LM", 5, 1, {31, 41, 61, 71}},
    {"LM", 10, 1, {11, 21, 41}},
    {"LM", 20, 1, {11, 41}},
    {"LM", 40, 1, {11}},
    {"LM", 5, 2, {31, 51, 61, 71}},
    {"LM", 10, 2, {11, 31, 41}},
    {"LM", 20, 2, {31, 41}},
    {"LM", 40, 2, {11}},
    {"LM", 5, 4, {11, 31, 71, 91}},
    {"LM", 10, 4, {11, 31, 61}},
    {"LM", 20, 4, {11, 61}},
    {"LM", 40, 4, {61}},
    {"Recommendation", 512, 1, {21, 41, 71, 91}},
    {"Recommendation", 1024, 1, {21, 51, 91}},
    {"Recommendation", 2048, 1, {21, 41}},
    {"Recommendation", 4096, 1, {41}},
});

bool within(int epoch, int from, int to) { return epoch >= from && epoch < to; }

bool critical(const Network& network, int batch, int epoch, int epochs) {
  if (epoch <= 0.3 * epochs) return true;
  if (network.name == "ResNet-18") {
    return epoch < (batch == 256 ? 20 : 10) || within(epoch, 150, 160) || within(epoch, 250, 260);
  }
  if (network.name == "ResNet-50") return epoch < 600 && epoch % 30 < 10;
  if (network.name == "LM") return epoch < 10;
  const int first = batch <= 1024 ? 30 : batch == 2048 ? 40 : 10;
  return epoch < first || within(epoch, 60, 70) || within(epoch, 80, 90);
}

int by_noise(const Network& network, int batch, int gpus, int epoch) {
  const auto at = std::find_if(kDoublings.begin(), kDoublings.end(), [&](const Doublings& d) {
    return d.network == network.name && d.batch == batch && d.gpus == gpus;
  });
  if (at == kDoublings.end()) return batch;
  for (const int doubles : at->epochs) {
    if (doubles > 0 && epoch >= doubles) batch *= 2;
  }
  return std::min(batch, network.largest);
}

}  // namespace

BatchSchedule batch_schedule(BatchChanges changes, std::string_view model, int batch, int gpus,
                             double steps) {
  BatchSchedule schedule{0, {{0, batch}}};
  const auto* network = std::find_if(kNetworks.begin(), kNetworks.end(),
                                     [&](const Network& n) { return n.name == model; });
  if (network == kNetworks.end() || batch < 1) return schedule;
  schedule.steps = (network->samples + batch - 1) / batch;
  if (changes == BatchChanges::none) return schedule;
  const int epochs = static_cast<int>(std::min(std::ceil(steps / schedule.steps), 1e6));
  for (int epoch = 1; epoch < epochs; ++epoch) {
    const int now = changes == BatchChanges::gns ? by_noise(*network, batch, gpus, epoch)
                    : critical(*network, batch, epoch, epochs) ? batch
                                                               : std::max(batch, network->largest);
    if (now != schedule.from.back().batch) schedule.from.push_back({epoch, now});
  }
  return schedule;
}

}  // namespace rubato::sim
