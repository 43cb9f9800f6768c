// SPDX-License-Identifier: Apache-2.0
//
// Runs a fuzz target without libFuzzer: first every file given, then for some seconds inputs that
// are made from the seeds 0, 1, 2, ... Such an input is random bytes, or one of the files with a
// few bytes changed, cut or repeated. A crash prints its seed; --seed makes the same input again if
// the same files are given.
//
//   NAME_replay [--seconds=S] [--seed=N] [FILE or FOLDER]...
#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include <unistd.h>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t bytes);

namespace {

using Input = std::vector<std::uint8_t>;

// The name of the current input, which the signal handler writes.
char now_running[512];
volatile std::sig_atomic_t now_running_length = 0;

void announce(const std::string& what) {
  now_running_length = 0;
  const int length =
      std::snprintf(now_running, sizeof(now_running), "crashed on %s\n", what.c_str());
  now_running_length = std::min(length, static_cast<int>(sizeof(now_running)) - 1);
}

void on_crash(int signal) {
  [[maybe_unused]] const auto written =
      ::write(STDERR_FILENO, now_running, static_cast<std::size_t>(now_running_length));
  std::signal(signal, SIG_DFL);
  std::raise(signal);
}

Input read_file(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return Input(std::istreambuf_iterator<char>(file), {});
}

// Copies the input to memory of exactly its size, so that a sanitizer sees a read past its end.
void run(const Input& input) {
  const Input exact(input.begin(), input.end());
  LLVMFuzzerTestOneInput(exact.data(), exact.size());
}

Input random_bytes(std::mt19937_64& random) {
  static constexpr std::size_t limits[] = {8, 64, 512, 4096};
  Input input(random() % limits[random() % std::size(limits)]);
  for (auto& byte : input) byte = static_cast<std::uint8_t>(random());
  return input;
}

void change(Input& input, std::mt19937_64& random) {
  if (input.empty()) return;
  const std::size_t place = random() % input.size();
  switch (random() % 5) {
    case 0:
      input[place] = static_cast<std::uint8_t>(random());
      break;
    case 1:
      input[place] ^= static_cast<std::uint8_t>(1u << random() % 8);
      break;
    case 2:
      input[place] = random() % 2 ? 0xff : 0;
      break;
    case 3:
      input.resize(place);
      break;
    default: {
      const Input tail(input.begin() + static_cast<std::ptrdiff_t>(place), input.end());
      input.insert(input.end(), tail.begin(), tail.end());
    }
  }
}

Input make_input(std::uint64_t seed, const std::vector<Input>& corpus) {
  std::mt19937_64 random(seed);
  if (corpus.empty() || random() % 4 == 0) return random_bytes(random);
  Input input = corpus[random() % corpus.size()];
  for (auto changes = 1 + random() % 4; changes > 0; --changes) change(input, random);
  return input;
}

// Sorted, because the order of a folder differs between file systems: a seed chooses a file by its
// place.
std::vector<std::filesystem::path> list_files(const std::filesystem::path& path) {
  if (!std::filesystem::is_directory(path)) return {path};
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(path))
    if (entry.is_regular_file()) files.push_back(entry.path());
  std::ranges::sort(files);
  return files;
}

}  // namespace

int main(int argc, char** argv) {
  double seconds = 1;
  std::optional<std::uint64_t> only_seed;
  std::vector<Input> corpus;
  for (const int signal : {SIGABRT, SIGSEGV, SIGBUS, SIGFPE, SIGILL}) std::signal(signal, on_crash);
  for (int i = 1; i < argc; ++i) {
    const std::string_view argument = argv[i];
    if (argument.starts_with("--seconds=")) {
      seconds = std::strtod(argv[i] + 10, nullptr);
    } else if (argument.starts_with("--seed=")) {
      only_seed = std::strtoull(argv[i] + 7, nullptr, 10);
    } else {
      for (const auto& file : list_files(argument)) {
        corpus.push_back(read_file(file));
        announce(file.string());
        run(corpus.back());
      }
    }
  }
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  std::uint64_t seed = only_seed.value_or(0);
  do {
    announce("--seed=" + std::to_string(seed));
    run(make_input(seed++, corpus));
  } while (!only_seed && std::chrono::steady_clock::now() < end);
  std::printf("%zu files, %llu inputs from seeds\n", corpus.size(),
              static_cast<unsigned long long>(seed - only_seed.value_or(0)));
}
