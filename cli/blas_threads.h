// How many threads the BLAS that was loaded uses, for as long as this lives, so that times compare like with like. BLAS libraries have no
// common way to say it; one without OpenBLAS' keeps its own number.
#pragma once

#include <dlfcn.h>

namespace regard::cli {

class BlasThreads {
 public:
  explicit BlasThreads(int threads) {
    if (auto* get = Find<int (*)()>("openblas_get_num_threads"); get != nullptr && set_ != nullptr) before_ = get();
    if (set_ != nullptr) set_(threads);
  }
  ~BlasThreads() {
    if (set_ != nullptr && before_ > 0) set_(before_);
  }
  BlasThreads(const BlasThreads&) = delete;
  BlasThreads& operator=(const BlasThreads&) = delete;

 private:
  template <typename Function>
  static Function Find(const char* name) {
    return reinterpret_cast<Function>(dlsym(RTLD_DEFAULT, name));
  }

  void (*set_)(int) = Find<void (*)(int)>("openblas_set_num_threads");
  int before_ = 0;
};

}  // namespace regard::cli
