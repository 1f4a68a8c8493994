// Takes any bytes as the files of an application, separated by '@', and as the speeds of GPU types.
// The result must be an error, or an application in which every shape takes time and makes
// progress, and speeds above 0.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "rubato/base/check.h"
#include "rubato/base/text.h"
#include "rubato/core/cluster.h"
#include "rubato/sim/profiles.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace rubato::fuzz;
  const auto cluster = parse_cluster("1x4:a,2x4:b");
  const auto speeds = parse_type_speeds({reinterpret_cast<const char*>(data), size}, *cluster);
  if (speeds.ok()) {
    CHECK(speeds->size() == 2);
    for (const double speed : *speeds) CHECK(speed > 0);
  }
  const auto parts = split({reinterpret_cast<const char*>(data), size}, '@');
  ApplicationTexts texts;
  texts.name = "input";
  texts.placements = {"placements.csv", std::string(parts[0])};
  if (parts.size() > 1) texts.scalability = {"scalability.csv", std::string(parts[1])};
  for (std::size_t i = 2; i < parts.size() && i < 6; ++i)
    texts.validation[static_cast<int>(i * i)] = {"validation.csv", std::string(parts[i])};
  const auto made = Application::parse(texts);
  if (!made) return 0;
  const Application& application = **made;
  CHECK(application.epochs() >= 1 && application.work() > 0 && application.most_gpus() >= 1);
  for (const int nodes : {1, 2, 5, 16, 40}) {
    for (const int gpus : {nodes, 3 * nodes}) {
      const Batch batch{application.limits().per_gpu_max, 1};
      const auto seconds = application.step_seconds(nodes, gpus, batch.per_gpu);
      CHECK(seconds.step > 0 && seconds.grad() > 0);
      CHECK(application.rate(seconds, gpus, batch, 0) >= 0);
    }
  }
  return 0;
}
