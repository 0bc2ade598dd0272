"""Element types in the names of kernels that work on lists of tensors."""

import pytest

from pyprof.hardware.kernels import element_type

CAT = "void at::native::(anonymous namespace)::CatArrayBatchedCopy%s, unsigned int, 3, 64, 64>(int)"
APPLY = (
    "void at::native::<unnamed>::multi_tensor_apply_kernel<at::native::<unnamed>::TensorListMetadata<(int)2>, "
    "at::native::<unnamed>::%s, (int)2, (int)2, (int)0>, std::plus<float>, float>(T1, T2, T3...)"
)


@pytest.mark.parametrize(
    ("name", "bits"),
    [
        (CAT % "<float", 32),
        (CAT % "<long", 64),
        (CAT % "_contig<at::native::(anonymous namespace)::OpaqueType<2u>", 16),
        (CAT % "_vectorized<at::native::<unnamed>::OpaqueType<(unsigned int)8>", 64),
        (APPLY % "BinaryOpListAlphaFunctor<c10::BFloat16", 16),
        (APPLY % "TernaryOpScalarFunctor<float", 32),
        (APPLY % "FusedAdamMathFunctor<double", 64),
        ("void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<int>>(int)", None),
        ("ampere_sgemm_128x64_tn", None),
    ],
)
def test_the_element_is_the_first_template_argument(name: str, bits: int | None) -> None:
    found = element_type(name)
    assert (found.bits if found is not None else None) == bits
