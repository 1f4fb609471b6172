package subresources

import (
	"net/http"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"skiff/internal/apiserver/codec"
	"skiff/internal/apiserver/request"
	"skiff/internal/apiserver/verbs"
	"skiff/internal/catalog"
)

// measured are objects that are not stored but found out for a request.
type measured struct {
	objects []catalog.Object
	list    runtime.Object // has the objects
	single  bool           // whether one object was asked for, not a list
	columns []metav1.TableColumnDefinition
	rows    [][]any // the cells of each object
}

// negotiate chooses the form of the response to a get.
func negotiate(rq *verbs.Request) (err error) {
	rq.Accept, err = codec.Negotiate(rq.Header.Get("Accept"), codec.AsTable, codec.AsPartial)
	return err
}

// negotiateList chooses the form of the response to a list, and returns its options.
func negotiateList(rq *verbs.Request) (_ *metav1.ListOptions, err error) {
	if rq.Accept, err = codec.Negotiate(rq.Header.Get("Accept"), codec.AsTable, codec.AsPartialList); err != nil {
		return nil, err
	}
	return request.ParseListOptions(rq.Query)
}

// send answers with the objects in the form that the client asked for.
func (m *measured) send(rq *verbs.Request) error {
	gvk := rq.Endpoint.Info.GVK
	switch rq.Accept.Shape {
	case codec.AsTable:
		return m.sendTable(rq)
	case codec.AsPartial:
		p := partial(rq, m.objects[0])
		return rq.SendObject(http.StatusOK, &p, rq.PartialKind("PartialObjectMetadata"))
	case codec.AsPartialList:
		list := &metav1.PartialObjectMetadataList{}
		for _, obj := range m.objects {
			list.Items = append(list.Items, partial(rq, obj))
		}
		return rq.SendObject(http.StatusOK, list, rq.PartialKind("PartialObjectMetadataList"))
	}
	if m.single {
		return rq.SendObject(http.StatusOK, m.objects[0], gvk)
	}
	gvk.Kind += "List"
	return rq.SendObject(http.StatusOK, m.list, gvk)
}

// partial returns the metadata of an object as an object of its own.
func partial(rq *verbs.Request, obj catalog.Object) metav1.PartialObjectMetadata {
	p := metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: obj.GetNamespace(), Name: obj.GetName(), Labels: obj.GetLabels(),
		CreationTimestamp: obj.GetCreationTimestamp()}}
	p.SetGroupVersionKind(rq.PartialKind("PartialObjectMetadata"))
	return p
}

func (m *measured) sendTable(rq *verbs.Request) error {
	include, err := rq.IncludeObject()
	if err != nil {
		return err
	}
	table := &metav1.Table{ColumnDefinitions: m.columns, Rows: []metav1.TableRow{}}
	for i, obj := range m.objects {
		row := metav1.TableRow{Cells: m.rows[i]}
		switch include {
		case metav1.IncludeMetadata:
			p := partial(rq, obj)
			row.Object = runtime.RawExtension{Object: &p}
		case metav1.IncludeObject:
			full := obj.DeepCopyObject()
			full.GetObjectKind().SetGroupVersionKind(rq.Endpoint.Info.GVK)
			row.Object = runtime.RawExtension{Object: full}
		}
		table.Rows = append(table.Rows, row)
	}
	return rq.SendObject(http.StatusOK, table, rq.PartialKind("Table"))
}
