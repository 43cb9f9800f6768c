// SPDX-License-Identifier: Apache-2.0
#include "examples/train/checkpoint.h"

#include <filesystem>
#include <fstream>
#include <iterator>
#include <vector>

#include "catch.h"
#include "examples/folder.h"

namespace train {
namespace {

const Identity identity = {{"--dtype", "f32"}, {"--seed", "1"}};

// A model of two tensors.
struct Model {
  std::vector<float> weight = std::vector<float>(6);
  std::vector<double> mean = std::vector<double>(3);

  void fill(int with) {
    for (std::size_t i = 0; i < weight.size(); ++i)
      weight[i] = static_cast<float>(with) + 0.1f * static_cast<float>(i);
    for (std::size_t i = 0; i < mean.size(); ++i) mean[i] = with - 0.1 * static_cast<double>(i);
  }
  std::vector<rondo::Parameter> tensors() {
    return {{"weight", {2, 3}, rondo::DType::f32, -1, weight.data()},
            {"mean", {3}, rondo::DType::f64, -1, mean.data()}};
  }
  bool operator==(const Model&) const = default;
};

Progress some_progress() {
  Progress progress;
  progress.step = 41;
  progress.epoch = 2;
  progress.taken = 640;
  progress.epoch_sums = {0.1, 1, 1.0 / 3, 4};
  progress.norm_batches = {41, 41, 41};
  return progress;
}

std::string content(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

void write(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
}

// A folder with a checkpoint of `model`, and another model to read it into.
struct Written {
  Folder folder;
  std::string path = folder.file("model.checkpoint");
  Model model, other;

  Written() {
    model.fill(3);
    other.fill(-5);
    write_checkpoint(path, identity, some_progress(), model.tensors());
  }
  void check_refused(const std::string& why, const Identity& its_identity = identity) {
    const Model before = other;
    CHECK_THROWS_WITH(read_checkpoint(path, its_identity, other.tensors()), Catch::Contains(why));
    CHECK(other == before);
  }
};

TEST_CASE("a checkpoint gives back what was written") {
  Written written;
  const Progress progress = read_checkpoint(written.path, identity, written.other.tensors());
  CHECK(written.other == written.model);
  CHECK(progress.step == 41);
  CHECK(progress.epoch == 2);
  CHECK(progress.taken == 640);
  CHECK(progress.epoch_sums == some_progress().epoch_sums);
  CHECK(progress.norm_batches == some_progress().norm_batches);
  CHECK_FALSE(std::filesystem::exists(written.path + ".new"));
}

TEST_CASE("a checkpoint takes the place of the one before only when it is whole") {
  Written written;
  const std::string before = content(written.path);
  std::filesystem::create_directory(written.path + ".new");  // blocks the temporary file
  CHECK_THROWS_AS(write_checkpoint(written.path, identity, {}, written.other.tensors()),
                  CheckpointError);
  CHECK(content(written.path) == before);
}

TEST_CASE("no byte of a checkpoint can change unnoticed") {
  Written written;
  const std::string good = content(written.path);
  for (std::size_t i = 0; i < good.size(); ++i) {
    std::string bad = good;
    bad[i] = static_cast<char>(bad[i] ^ (1 << i % 8));
    write(written.path, bad);
    CHECK_THROWS_AS(read_checkpoint(written.path, identity, written.other.tensors()),
                    CheckpointError);
  }
}

TEST_CASE("a checkpoint that is cut or continued is refused") {
  Written written;
  const std::string good = content(written.path);
  for (std::size_t bytes = 0; bytes < good.size(); ++bytes) {
    write(written.path, good.substr(0, bytes));
    CHECK_THROWS_AS(read_checkpoint(written.path, identity, written.other.tensors()),
                    CheckpointError);
  }
  write(written.path, good + "x");
  written.check_refused("damaged");
}

TEST_CASE("the reason of a refusal is told") {
  Written written;
  written.check_refused("it is from a run with --seed 1, and this run has --seed 2",
                        {{"--seed", "2"}});
  written.check_refused("it is from a run with --clip nothing", {{"--clip", "2"}});
  write(written.path, "a text that somebody wrote");
  written.check_refused("it is no checkpoint of this program");
  std::filesystem::remove(written.path);
  written.check_refused("it cannot be opened: No such file or directory");
}

TEST_CASE("a checkpoint of another model is refused") {
  Written written;
  auto tensors = written.other.tensors();
  tensors[0].shape = {3, 2};
  CHECK_THROWS_WITH(
      read_checkpoint(written.path, identity, tensors),
      Catch::Contains("[2,3]") && Catch::Contains("[3,2]") && Catch::Contains("tensor 0"));
  tensors = written.other.tensors();
  tensors.pop_back();
  CHECK_THROWS_WITH(read_checkpoint(written.path, identity, tensors),
                    Catch::Contains("missing here"));
}

}  // namespace
}  // namespace train
