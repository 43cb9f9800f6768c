// SPDX-License-Identifier: Apache-2.0
//
// Gradients and norms end with the same bits, whatever form a program gives them: the transport,
// the size of buckets, host memory or a GPU, views or copies, the order of readiness.
#include <cmath>
#include <cstring>
#include <optional>

#include "catch.h"
#include "grad/trainer.h"
#include "support/draw.h"
#include "support/effort.h"

namespace rondo::testing {
namespace {

// How the program gives its gradients.
enum class Way { views, copies, both };

struct Form {
  Device device = Device::host;
  Way way = Way::views;
  std::size_t cap = 640;
  Over over = Over::mem;
  bool forwards = false;  // not the order of the first layout
};

// One step of one rank.
struct StepPlan {
  double weight = 1;
  bool local = false;
  bool zero = false;
  std::vector<std::size_t> unused{};
  double clip = -1;  // the largest norm
  int growth = 0;    // gradients of f32 are multiplied by 2 to the power of this
  bool on_stream = true;
};

// The calls of the ranks are the same in every form.
struct Script {
  Model model;
  GradientOptions options;
  std::vector<std::vector<StepPlan>> plans;  // by rank and step
  bool alike = true;                         // all ranks end with the same gradients
};

struct Record {
  std::vector<Bytes> gradients;  // by parameter, of one step after the other
  std::vector<double> norms;
};

// Finite values of moderate size: the two highest bits of each exponent differ.
Bytes draw_gradient(const Tensor& tensor, int growth, Draw& draw) {
  const std::size_t each = size_of(tensor.type);
  Bytes bytes(tensor.count * each);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(draw(256));
  for (std::size_t i = each - 1; i < bytes.size(); i += each)
    bytes[i] = (bytes[i] & std::byte{0x83}) | std::byte{0x3c};
  if (tensor.type != DType::f32 || growth == 0) return bytes;
  const Buffer values{bytes.data(), tensor.count, DType::f32};
  for (std::size_t i = 0; i < tensor.count; ++i)
    set_element(values, i, std::ldexp(element_of(values, i), growth));
  return bytes;
}

void run_plan(Trainer& trainer, const Script& script, const Form& form, const StepPlan& plan,
              Draw draw) {
  const std::size_t n = script.model.size();
  std::vector<Bytes> gradients;
  for (std::size_t i = 0; i < n; ++i)
    gradients.push_back(draw_gradient(script.model.tensor(i), plan.growth, draw));
  std::optional<GradientBuckets::Accumulation> local;
  if (plan.local) local.emplace(trainer.buckets);
  if (plan.zero) trainer.zero();
  trainer.begin({.weight = plan.weight, .unused = plan.unused});
  for (std::size_t at = 0; at < n; ++at) {
    const std::size_t i = form.forwards ? at : n - 1 - at;
    if (std::ranges::find(plan.unused, i) == plan.unused.end())
      trainer.give(i, gradients[i],
                   form.way == Way::copies || (form.way == Way::both && i % 2 != 0));
  }
  trainer.finish(plan.on_stream);
  if (plan.clip < 0) return trainer.settle();
  trainer.clip(plan.clip);
  trainer.settle();
}

// Runs the script in one form. Returns the records of all ranks.
std::vector<Record> records_of(const Script& script, const Form& form) {
  GradientOptions options = script.options;
  options.bucket_bytes = form.cap;
  options.first_bucket_bytes = std::min(form.cap, options.first_bucket_bytes);
  Setup setup = ranks(static_cast<int>(script.plans.size()), form.over);
  setup.options.reproducible = true;  // direct algorithms on host memory round short floats once
  std::vector<Record> records(script.plans.size());
  run_each(setup, [&](Communicator& c, int rank) {
    Trainer trainer(c, form.device, script.model, options);
    expect(trainer.buckets.norm() == 0, "a norm before the first step");
    const auto own = static_cast<std::size_t>(rank);
    std::uint64_t step = 0;
    for (const StepPlan& plan : script.plans[own]) {
      run_plan(trainer, script, form, plan, Draw(100 * step++ + own));
      for (std::size_t i = 0; i < script.model.size(); ++i)
        records[own].gradients.push_back(trainer.read(i));
      if (plan.local) continue;
      expect(trainer.buckets.finite(), "an infinite norm");
      records[own].norms.push_back(trainer.buckets.norm());
      records[own].norms.push_back(trainer.buckets.clip_factor(0.1));
    }
    c.barrier().wait();  // ends the operations that only a stream has joined
  });
  return records;
}

// Names the first place where two records differ; empty if they do not.
std::string difference(const Record& one, const Record& other, std::size_t parameters) {
  for (std::size_t i = 0; i < one.gradients.size(); ++i)
    if (i >= other.gradients.size() || one.gradients[i] != other.gradients[i])
      return "p" + std::to_string(i % parameters) + " in step " + std::to_string(i / parameters);
  return one.norms == other.norms ? "" : "a norm";
}

// number: the row of its table. Where there is a GPU, the smaller sets run a third of the rows.
void expect_same_bits(std::uint64_t number, const Script& script, const std::vector<Form>& forms) {
  if (devices().size() > 1 && !drawn(number, std::max(effort(), 33))) return;
  INFO("row " << number << " with RONDO_TEST_SEED=" << test_seed());
  std::vector<Record> first;
  for (const Form& form : forms) {
    if (form.device == Device::gpu && devices().size() == 1) continue;
    INFO((form.device == Device::gpu ? "GPU" : "host")
         << " over " << name_of(form.over) << ", buckets of " << form.cap << ", way "
         << static_cast<int>(form.way));
    std::vector<Record> records = records_of(script, form);
    if (first.empty()) first = records;
    REQUIRE(!first[0].gradients.empty());
    for (std::size_t rank = 0; rank < records.size(); ++rank) {
      INFO("rank " << rank);
      CHECK(difference(first[rank], records[rank], script.model.size()) == "");
      if (script.alike) CHECK(difference(records[0], records[rank], script.model.size()) == "");
    }
  }
}

constexpr Device host = Device::host, gpu = Device::gpu;

TEST_CASE("reproducible: the same bits for every bucket size, transport, memory and way",
          "[devices]") {
  const auto [averaging, uneven] = GENERATE(table<Averaging, bool>({{Averaging::mean, false},
                                                                    {Averaging::mean, true},
                                                                    {Averaging::sum, false},
                                                                    {Averaging::weighted, true}}));
  const std::optional<DType> wire =
      GENERATE(as<std::optional<DType>>(), std::nullopt, DType::bf16, DType::f16);
  GradientOptions options;
  options.averaging = averaging;
  options.wire = wire;
  options.warn = [](const std::string&) {};
  std::vector<std::vector<StepPlan>> plans(3);
  for (std::size_t rank = 0; rank < 3; ++rank)
    for (int step = 0; step < 4; ++step)
      plans[rank].push_back({.weight = uneven ? 1.0 + static_cast<double>(rank) : 1.0,
                             .clip = step == 2 ? 1.5 : -1,
                             .on_stream = step % 2 == 0});
  std::vector<Form> forms;
  for (const Over over : {Over::mem, Over::tcp, Over::shm})
    for (const std::size_t cap : {std::size_t{64}, std::size_t{1024}, std::size_t{1} << 20})
      forms.push_back({host, Way::views, cap, over, true});
  for (const Way way : {Way::views, Way::copies, Way::both})
    for (const Device device : {host, gpu}) forms.push_back({device, way});
  const auto number = static_cast<std::uint64_t>(averaging) * 6 + (uneven ? 3 : 0) +
                      (!wire                  ? 0
                       : *wire == DType::bf16 ? 1
                                              : 2);
  expect_same_bits(number, {Model::mixed(), options, plans}, forms);
}

TEST_CASE("unused gradients, ranks without data and local steps have the same bits on a GPU",
          "[devices]") {
  const bool find = GENERATE(false, true);
  const Model model = Model::mixed();
  std::vector<std::vector<StepPlan>> plans(3);
  for (std::size_t rank = 0; rank < 3; ++rank) {
    Draw draw(rank + (find ? 10 : 20)), same(7);
    for (int step = 0; step < 12; ++step) {
      StepPlan plan{
          .weight = draw(4) == 0 ? 0.0 : 1.0, .local = same(3) == 0, .zero = same(3) == 0};
      const bool unused = same(4) != 0;
      for (std::size_t i = 0; unused && i < model.size(); ++i) {
        // Some are unused on all ranks: those stay as they are.
        const bool everywhere = same(4) == 0;
        if (everywhere || draw(3) == 0) plan.unused.push_back(i);
      }
      plan.on_stream = draw(2) == 0;
      plans[rank].push_back(plan);
    }
  }
  GradientOptions options;
  options.find_unused = find;
  options.wire = GENERATE(as<std::optional<DType>>(), std::nullopt, DType::bf16, DType::f16);
  const std::uint64_t number = (!options.wire                  ? 0
                                : *options.wire == DType::bf16 ? 1
                                                               : 2) +
                               (find ? 3 : 0);
  expect_same_bits(number, {model, options, plans, false},
                   {{host}, {gpu}, {host, Way::both}, {gpu, Way::both}});
}

// In buckets that share parameters, blocks of squares or both.
TEST_CASE("f16 on the wire has the same bits on a GPU, of small and of large gradients",
          "[devices]") {
  const std::size_t cap = GENERATE(1024, 20'032, std::size_t{1} << 20);
  const std::size_t size = GENERATE(1, 2);
  std::vector<std::vector<StepPlan>> plans(size);
  for (auto& plan : plans)
    for (const int growth : {0, 12, -12, -20, 14})
      plan.push_back({.growth = growth, .on_stream = plan.size() % 2 != 0});
  GradientOptions options;
  options.first_bucket_bytes = 512;
  options.wire = DType::f16;
  if (cap > 20'032) options.on_bucket = [](const CompletedBucket&) {};
  const std::uint64_t number = (cap == 1024 ? 0 : cap == 20'032 ? 2 : 4) + (size - 1);
  expect_same_bits(number,
                   {Model({{9000}, {100, DType::f64}, {300}, {1}, {5000}, {33}}), options, plans},
                   {{host, Way::views, cap}, {gpu, Way::views, cap}, {gpu, Way::copies, cap}});
}

// Gradients of several blocks of squares.
TEST_CASE("norms of large gradients have the same bits on a GPU", "[devices]") {
  GradientOptions options;
  options.first_bucket_bytes = 512;
  std::vector<std::vector<StepPlan>> plans(2);
  for (auto& plan : plans) plan = {{}, {.clip = 3.7, .on_stream = false}, {.clip = 1e6}};
  std::vector<Form> forms;
  for (const Device device : {host, gpu}) forms.push_back({device, Way::views, 16'384});
  expect_same_bits(0,
                   {Model({{9000},
                           {4096, DType::f64},
                           {20'001},
                           {8193, DType::bf16},
                           {1},
                           {12'000, DType::f16},
                           {4097}}),
                    options, plans},
                   forms);
}

}  // namespace
}  // namespace rondo::testing
